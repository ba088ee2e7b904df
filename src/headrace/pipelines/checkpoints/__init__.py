# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of Spark queries: read, compared with topics and sinks, repaired. Read next: checkpoint.py."""
