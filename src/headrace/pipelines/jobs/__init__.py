# SPDX-License-Identifier: Apache-2.0
"""The built-in jobs store, analyze and copy, and what they share. Read next: records.py."""
