# SPDX-License-Identifier: Apache-2.0
"""Reads and writes throttle_time_ms in the encoded frame of a reply, however the reply was made.

For every API but Produce and Fetch, which write it themselves. Read next: broker/quotas/client_throttles.py.
"""

from __future__ import annotations

from struct import Struct

from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS
from headrace.wire.kio_codec.schema import field_names, message_class
from headrace.wire.primitives import read_uvarint

_FIELD = "throttle_time"
_INT32 = Struct(">i")
_BODY_AT = 8
"""Behind the frame's length and the correlation id."""
_OFFSET_DELETE_AT = _BODY_AT + 2
"""Its reply begins with an error code."""
_API_VERSIONS_COUNT_AT = _BODY_AT + 2
_API_BYTES, _API_BYTES_FLEXIBLE = 6, 7

_known: dict[tuple[int, int], int | None] = {}


def read_throttle_ms(api_key: int, version: int, frame: bytes) -> int:
    """0 when replies of this version have no throttle time."""
    position = _position(api_key, version, frame)
    return 0 if position is None else int(_INT32.unpack_from(frame, position)[0])


def with_throttle_ms(api_key: int, version: int, frame: bytes, throttle_ms: int) -> bytes:
    """The frame with another throttle time; the same one when this version has none."""
    position = _position(api_key, version, frame)
    if position is None:
        return frame
    return b"".join((frame[:position], _INT32.pack(throttle_ms), frame[position + _INT32.size :]))


def _position(api_key: int, version: int, frame: bytes) -> int | None:
    if api_key == ApiKey.API_VERSIONS and version > 0:
        return _after_api_versions(version, frame)
    try:
        return _known[api_key, version]
    except KeyError:
        found = _known[api_key, version] = _fixed_position(api_key, version)
        return found


def _fixed_position(api_key: int, version: int) -> int | None:
    api = APIS[api_key]
    names = field_names(message_class(api.name, version, "response"), ())
    if api_key in (ApiKey.PRODUCE, ApiKey.API_VERSIONS) or _FIELD not in (names or ()):
        return None
    if api_key == ApiKey.OFFSET_DELETE:
        return _OFFSET_DELETE_AT
    return _BODY_AT + (version >= api.flexible_reply_from)


def _after_api_versions(version: int, frame: bytes) -> int:
    if version >= APIS[ApiKey.API_VERSIONS].flexible_from:
        count, position = read_uvarint(memoryview(frame), _API_VERSIONS_COUNT_AT)
        return position + (count - 1) * _API_BYTES_FLEXIBLE
    (count,) = _INT32.unpack_from(frame, _API_VERSIONS_COUNT_AT)
    return _API_VERSIONS_COUNT_AT + _INT32.size + int(count) * _API_BYTES
