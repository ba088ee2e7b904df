"""Compiles encoders and decoders of Kafka messages from kio's generated classes."""
