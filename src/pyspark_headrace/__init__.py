# SPDX-License-Identifier: Apache-2.0
"""The Spark data source `format("headrace")`: batch and streaming reads and writes of any Kafka's topics.

Spark imports every installed package named pyspark_* and registers its DefaultSource: no jar and no
registration call. Read next: source.py; reading/offsets.py for the checkpoint format.
"""

from pyspark_headrace.source import HeadraceSource as DefaultSource

__all__ = ["DefaultSource"]
