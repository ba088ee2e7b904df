# SPDX-License-Identifier: Apache-2.0
"""A bounded GET over https, blocking: for realworld.py, which calls it in a thread.

Follows no redirect, uses no proxy, checks the host's certificate, and ends at a size and at a time (S9).
"""

from __future__ import annotations

import http.client
import ssl
import time
from urllib.parse import urlsplit

_PIECE_BYTES = 64 * 1024


def https_get(url: str, *, timeout_s: float, max_bytes: int) -> bytes:
    """The body of the page. Raises OSError when it cannot be had within the limits."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise OSError(f"{url} is not an https address")
    deadline = time.monotonic() + timeout_s
    connection = http.client.HTTPSConnection(
        parts.hostname, parts.port, timeout=timeout_s, context=ssl.create_default_context()
    )
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers={"Accept": "application/json", "Connection": "close"})
        reply = connection.getresponse()
        if reply.status != http.client.OK:
            raise OSError(f"{url} answers {reply.status} {reply.reason}; redirects are not followed")
        return _body(reply, url, deadline, max_bytes)
    except http.client.HTTPException as error:
        raise OSError(f"{url} does not speak HTTP: {error!r}") from error
    finally:
        connection.close()


def _body(reply: http.client.HTTPResponse, url: str, deadline: float, max_bytes: int) -> bytes:
    data = bytearray()
    while piece := reply.read1(_PIECE_BYTES):
        data += piece
        if len(data) > max_bytes:
            raise OSError(f"{url} has more than {max_bytes} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{url} took too long")
    return bytes(data)
