# SPDX-License-Identifier: Apache-2.0
"""Checks of the batches that producers send. Read next: record_validation.py."""
