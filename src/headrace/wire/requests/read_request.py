# SPDX-License-Identifier: Apache-2.0
"""Which code reads a request's body: straight code where the API has its own, else the general codec.

Produce and Fetch are read by their handlers' own code (broker/dispatch/dispatcher.py).
Read next: wire/messages.py, group_membership.py, offset_commit.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from headrace.wire.api_key import ApiKey
from headrace.wire.messages import decode_request
from headrace.wire.requests.group_membership import read_join_group, read_sync_group
from headrace.wire.requests.offset_commit import read_offset_commit

Reader = Callable[[int, memoryview, int, int], object]
"""(version, view, position, end) -> the request. Raises DecodeError."""

READERS: Mapping[int, Reader] = MappingProxyType(
    {
        ApiKey.OFFSET_COMMIT.value: read_offset_commit,
        ApiKey.JOIN_GROUP.value: read_join_group,
        ApiKey.SYNC_GROUP.value: read_sync_group,
    }
)


def read_request(api_key: int, version: int, view: memoryview, position: int, end: int) -> Any:
    """The request from the body in [position, end), which must be of a version that is served."""
    reader = READERS.get(api_key)
    if reader is None:
        return decode_request(api_key, version, view, position, end)
    return reader(version, view, position, end)
