# SPDX-License-Identifier: Apache-2.0
"""Codec for an API whose requests on one connection mostly repeat the last one: heartbeats of group members.

A member sends the same heartbeat for hours and gets the same reply: a frame equal to the last one but for its
correlation id is not decoded again, and equal reply fields are not encoded again. Read next:
wire/messages.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.wire.api_table import RequestHeader
from headrace.wire.messages import decode_request, encode_reply, with_correlation_id

_CORRELATION_END = 8
"""Behind key, version and correlation id."""


class RepeatedCodec:
    """Holds the last request and the last reply of one API on one connection."""

    __slots__ = ("_api_key", "_fields", "_frame", "_request", "_tail", "_version", "prepared")

    def __init__(self, api_key: int) -> None:
        self._api_key = api_key
        self._version = -1
        self._tail = b""
        self._request: Any = None
        self._fields: Mapping[str, Any] | None = None
        self._frame = b""
        self.prepared: Any = None
        """For the handler: what it made of the last request. None again when another one was decoded."""

    def recognise(self, version: int, view: memoryview, start: int, end: int) -> Any:
        """The last request, if the frame view[start:end] repeats it; must not be changed. Else None."""
        if version != self._version or view[start + _CORRELATION_END : end] != self._tail:
            return None
        return self._request

    def decode(self, header: RequestHeader, view: memoryview, start: int, end: int) -> Any:
        """As messages.decode_request; the request must not be changed."""
        version = header.api_version
        request = decode_request(self._api_key, version, view, header.body_position, end)
        self._tail = bytes(view[start + _CORRELATION_END : end])
        self._request, self._version, self._fields, self.prepared = request, version, None, None
        return request

    def encode(self, correlation_id: int, fields: Mapping[str, Any]) -> bytes:
        """The whole frame of the reply to the last request."""
        if fields != self._fields:
            self._frame = encode_reply(self._api_key, self._version, 0, fields)
            self._fields = fields
        return with_correlation_id(self._frame, correlation_id)
