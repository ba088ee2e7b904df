"""Loops over the bytes of records in C, and what loads them. For every layer; imports none of ours.

Read next: library.py; docs/decisions/0008-kernels-in-c-without-python-headers.md.
"""
