"""`format("headrace_delta")` for Spark: Delta tables as a sink, each micro-batch exactly once, without a jar.

Spark imports every installed package named pyspark_* and registers its DefaultSource by itself. Read next:
source.py; commit.py for what makes it exactly once.
"""

from pyspark_headrace_delta.source import DeltaSource as DefaultSource

__all__ = ["DefaultSource"]
