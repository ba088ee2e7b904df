"""Keys and values as typed columns, and typed columns as keys and values: text, numbers, JSON, Avro.

Knows no network but for a schema registry's. Read next: formats.py (what a user names), converters.py.
"""
