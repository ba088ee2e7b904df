# SPDX-License-Identifier: Apache-2.0
"""Progress of running queries: metrics, reports for the console. Read next: source_report.py."""
