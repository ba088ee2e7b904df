# SPDX-License-Identifier: Apache-2.0
"""Deserializes keys and values into typed columns, and serializes them: text, numbers, JSON, Avro.

Uses no network except for a schema registry. Read next: formats.py, converters.py, serializers.py.
"""
