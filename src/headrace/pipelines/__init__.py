# SPDX-License-Identifier: Apache-2.0
"""Data pipelines on Spark, over topics of any Kafka. Read next: spark_session/session.py, runner.py."""
