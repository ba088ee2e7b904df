# SPDX-License-Identifier: Apache-2.0
"""Topics and Delta tables as DataFrames, read by Spark's own Parquet reader. Read next: topic_table.py."""
