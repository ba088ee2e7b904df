# SPDX-License-Identifier: Apache-2.0
"""The Spark data source `format("headrace_delta")`: exactly-once writes to Delta tables without a jar.

Spark imports every installed package named pyspark_* and registers its DefaultSource. Read next:
source.py; commit.py for exactly-once.
"""

from pyspark_headrace_delta.source import DeltaSource as DefaultSource

__all__ = ["DefaultSource"]
