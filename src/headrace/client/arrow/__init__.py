# SPDX-License-Identifier: Apache-2.0
"""Topics as Arrow tables: whole record batches decoded and encoded by compiled code.

Needs the extra `[arrow]`. Read next: read/reader.py, write/writer.py, stream/stream.py, fetch/fetcher.py.
"""
