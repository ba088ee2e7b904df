# SPDX-License-Identifier: Apache-2.0
"""Spark's own Kafka connector and ours side by side: the processes that run them and the queries they run."""
