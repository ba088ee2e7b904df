# SPDX-License-Identifier: Apache-2.0
"""C kernels that loop over the bytes of records, and their loader. Imports nothing of Headrace.

Read next: library.py; docs/decisions/0008-kernels-in-c-without-python-headers.md.
"""
