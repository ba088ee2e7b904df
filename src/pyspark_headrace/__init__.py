"""`format("headrace")` for Spark: topics of any Kafka as batch and streaming source and as sink.

Spark imports every installed package named pyspark_* and registers its DefaultSource by itself: no jar, no
registration. Read next: source.py; offsets.py for what a checkpoint holds.
"""

from pyspark_headrace.source import HeadraceSource as DefaultSource

__all__ = ["DefaultSource"]
