# SPDX-License-Identifier: Apache-2.0
"""Data pipelines on Spark, over topics of any Kafka. Read next: session.py."""
