"""Headrace: an event-streaming platform that speaks the Kafka protocol."""

__version__ = "0.1.0"
