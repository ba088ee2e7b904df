"""Topics as Arrow tables: whole record batches decoded and encoded by compiled code.

Needs the extra `[arrow]`. Must not know the broker. Read next: kernels.py, decode.py, encode.py.
"""
