# SPDX-License-Identifier: Apache-2.0
"""Compiles encoders and decoders of Kafka messages from kio's generated classes."""
