"""Data pipelines on Spark, over topics of any Kafka. Read next: session.py."""
