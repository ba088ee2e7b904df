# SPDX-License-Identifier: Apache-2.0
"""Delta tables, through the `deltalake` package: no Spark, no jar. Read next: table.py."""
