"""The APIs this broker serves: key, versions, handler family. ApiVersions is answered from this table and
dispatch uses it, so the broker cannot promise what it does not serve. Also reads request headers.

Knows no message bodies. Read next: messages.py, produce_fetch.py, broker/dispatch.py.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from headrace.errors import DecodeError
from headrace.wire.primitives import MALFORMED, skip_tagged_fields

API_VERSIONS_KEY = 18
_NEVER = 1 << 15
"""Of an API without flexible versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    key: int
    name: str
    min_version: int
    max_version: int
    family: str
    accept_from: int
    """Lowest version that is decoded; below it, down to min_version, requests get UNSUPPORTED_VERSION."""
    flexible_from: int

    def accepts(self, version: int) -> bool:
        return self.accept_from <= version <= self.max_version


def _api(
    key: int,
    name: str,
    versions: tuple[int, int],
    flexible_from: int,
    family: str,
    accept_from: int | None = None,
) -> Api:
    low, high = versions
    return Api(
        key=key,
        name=name,
        min_version=low,
        max_version=high,
        family=family,
        accept_from=low if accept_from is None else accept_from,
        flexible_from=flexible_from,
    )


_TABLE = (
    # Advertised from 0: older librdkafka stops compressing when the lowest version is 3 (librdkafka#4956).
    _api(0, "produce", (0, 13), 9, "produce", accept_from=3),
    _api(1, "fetch", (4, 18), 12, "fetch"),
    _api(2, "list_offsets", (1, 11), 6, "offsets"),
    _api(3, "metadata", (0, 13), 9, "metadata"),
    _api(8, "offset_commit", (2, 10), 8, "group_offsets"),
    _api(9, "offset_fetch", (1, 10), 6, "group_offsets"),
    # Needed by producers too: librdkafka compresses with lz4 only when this API is there.
    _api(10, "find_coordinator", (0, 6), 3, "coordinators"),
    _api(11, "join_group", (0, 9), 6, "group_members"),
    _api(12, "heartbeat", (0, 4), 4, "group_members"),
    _api(13, "leave_group", (0, 5), 4, "group_members"),
    _api(14, "sync_group", (0, 5), 4, "group_members"),
    _api(15, "describe_groups", (0, 6), 5, "groups"),
    _api(16, "list_groups", (0, 5), 3, "groups"),
    _api(API_VERSIONS_KEY, "api_versions", (0, 4), 3, "metadata"),
    _api(19, "create_topics", (2, 7), 5, "topics"),
    _api(20, "delete_topics", (1, 6), 4, "topics"),
    _api(21, "delete_records", (0, 2), 2, "offsets"),
    _api(22, "init_producer_id", (0, 5), 2, "producers"),
    # From 2: librdkafka asks for exactly this version.
    _api(23, "offset_for_leader_epoch", (2, 4), 4, "offsets"),
    _api(32, "describe_configs", (1, 4), 4, "configs"),
    _api(33, "alter_configs", (0, 2), 2, "configs"),
    _api(35, "describe_log_dirs", (1, 5), 2, "cluster"),
    _api(37, "create_partitions", (0, 3), 2, "topics"),
    _api(42, "delete_groups", (0, 2), 2, "groups"),
    _api(43, "elect_leaders", (0, 2), 2, "replicas"),
    _api(44, "incremental_alter_configs", (0, 1), 1, "configs"),
    _api(45, "alter_partition_reassignments", (0, 1), 0, "replicas"),
    _api(46, "list_partition_reassignments", (0, 0), 0, "replicas"),
    _api(47, "offset_delete", (0, 0), _NEVER, "group_offsets"),
    # From 3: each member with the node epoch it was judged by.
    _api(56, "alter_partition", (3, 3), 0, "replicas"),
    _api(60, "describe_cluster", (0, 2), 0, "cluster"),
    _api(61, "describe_producers", (0, 0), 0, "producers"),
    _api(64, "unregister_broker", (0, 0), 0, "cluster"),
    _api(68, "consumer_group_heartbeat", (0, 1), 0, "group_members"),
    _api(69, "consumer_group_describe", (0, 1), 0, "groups"),
    _api(75, "describe_topic_partitions", (0, 0), 0, "metadata"),
)

_SPOKEN_ONLY = (
    # From 1: version 0 has the SASL exchange go on outside Kafka's requests.
    _api(17, "sasl_handshake", (1, 1), _NEVER, "client"),
    # Up to 3: later versions are for brokers among each other.
    _api(24, "add_partitions_to_txn", (0, 3), 3, "client"),
    _api(25, "add_offsets_to_txn", (0, 4), 3, "client"),
    _api(26, "end_txn", (0, 5), 3, "client"),
    _api(28, "txn_offset_commit", (0, 5), 3, "client"),
    _api(36, "sasl_authenticate", (0, 2), 2, "client"),
)

APIS: Mapping[int, Api] = MappingProxyType({api.key: api for api in _TABLE})
SPOKEN_APIS: Mapping[int, Api] = MappingProxyType({**APIS, **{api.key: api for api in _SPOKEN_ONLY}})
"""What our clients speak: also what this broker does not serve and others do."""


def request_header_flexible(key: int, version: int) -> bool:
    """Whether the request header ends in tagged fields (header version 2)."""
    api = SPOKEN_APIS.get(key)
    return api is not None and version >= api.flexible_from


def response_header_flexible(key: int, version: int) -> bool:
    """Never for ApiVersions: its reader does not know yet what the broker speaks."""
    return key != API_VERSIONS_KEY and request_header_flexible(key, version)


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


_FIXED = struct.Struct(">hhih")
_unpack_fixed = _FIXED.unpack_from
_new_header = tuple.__new__
_FLEXIBLE_VERSIONS = {api.key: range(api.flexible_from, api.max_version + 1) for api in _TABLE}
_NONE = range(0)


def read_request_header(view: memoryview, position: int, end: int) -> RequestHeader:
    """The header at `position`.

    Unknown keys and versions are returned too, for the caller to answer; their tagged fields, whose layout
    is not known, are left to the body.
    """
    if end - position < _FIXED.size:
        raise DecodeError(f"request header of {end - position} bytes")
    key, version, correlation_id, length = _unpack_fixed(view, position)
    position += _FIXED.size
    client_id = None
    try:
        if length >= 0:
            stop = position + length
            if stop > end:
                raise DecodeError(f"client id of {length} bytes, {end - position} left")
            client_id = str(view[position:stop], "utf-8")
            position = stop
        if version in _FLEXIBLE_VERSIONS.get(key, _NONE):
            if position < end and not view[position]:
                position += 1
            else:
                position = skip_tagged_fields(view[:end], position, end)
    except MALFORMED as error:
        raise DecodeError(f"malformed request header: {error}") from None
    return _new_header(RequestHeader, (key, version, correlation_id, client_id, position))
