# SPDX-License-Identifier: Apache-2.0
"""Which code writes a reply given as fields: straight code where the API has its own, else the general codec.

Read next: wire/messages.py, offset_fetch_reply.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from headrace.wire.api_key import ApiKey
from headrace.wire.messages import encode_reply
from headrace.wire.requests.offset_fetch_reply import write_offset_fetch_reply

Writer = Callable[[int, int, Mapping[str, Any]], bytes]
"""(version, correlation id, fields) -> the whole frame."""

WRITERS: Mapping[int, Writer] = MappingProxyType({ApiKey.OFFSET_FETCH.value: write_offset_fetch_reply})


def write_reply(api_key: int, version: int, correlation_id: int, fields: Mapping[str, Any]) -> bytes:
    """The whole frame, with the fields that messages.encode_reply takes."""
    writer = WRITERS.get(api_key)
    if writer is None:
        return encode_reply(api_key, version, correlation_id, fields)
    return writer(version, correlation_id, fields)
