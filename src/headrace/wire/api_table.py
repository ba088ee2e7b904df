# SPDX-License-Identifier: Apache-2.0
"""The APIs this broker serves, with versions and handler families, and the request header.

ApiVersions is answered from this table and dispatch uses it, so the broker advertises only what it serves.
Read next: messages.py, requests/, broker/dispatch/dispatcher.py.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from headrace.errors import DecodeError
from headrace.wire.api_key import ApiKey
from headrace.wire.primitives import MALFORMED, skip_tagged_fields

_NEVER = 1 << 15
"""Of an API without flexible versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    key: ApiKey
    name: str
    """As kio names its modules: list_offsets."""
    min_version: int
    max_version: int
    family: str
    accepted: range
    """Versions that are decoded; a request of another one closes its connection."""
    flexible_from: int
    """Lowest version whose request header ends in tagged fields (header version 2)."""
    flexible_reply_from: int
    """Of the reply header. Never for ApiVersions: its reader does not know yet which versions are served."""

    @property
    def label(self) -> str:
        """As Kafka's documentation writes it: ListOffsets."""
        return "".join(part.capitalize() for part in self.name.split("_"))


def _api(
    key: ApiKey,
    versions: tuple[int, int],
    flexible_from: int,
    family: str,
    accept_from: int | None = None,
) -> Api:
    low, high = versions
    return Api(
        key=key,
        name=key.name.lower(),
        min_version=low,
        max_version=high,
        family=family,
        accepted=range(low if accept_from is None else accept_from, high + 1),
        flexible_from=flexible_from,
        flexible_reply_from=_NEVER if key is ApiKey.API_VERSIONS else flexible_from,
    )


_TABLE = (
    # Advertised from 0: older librdkafka stops compressing when the lowest version is 3 (librdkafka#4956).
    _api(ApiKey.PRODUCE, (0, 13), 9, "produce", accept_from=3),
    _api(ApiKey.FETCH, (4, 18), 12, "fetch"),
    _api(ApiKey.LIST_OFFSETS, (1, 11), 6, "offsets"),
    _api(ApiKey.METADATA, (0, 13), 9, "metadata"),
    _api(ApiKey.OFFSET_COMMIT, (2, 10), 8, "group_offsets"),
    _api(ApiKey.OFFSET_FETCH, (1, 10), 6, "group_offsets"),
    # Needed by producers too: librdkafka compresses with lz4 only when this API is there.
    _api(ApiKey.FIND_COORDINATOR, (0, 6), 3, "coordinators"),
    _api(ApiKey.JOIN_GROUP, (0, 9), 6, "group_members"),
    _api(ApiKey.HEARTBEAT, (0, 4), 4, "group_members"),
    _api(ApiKey.LEAVE_GROUP, (0, 5), 4, "group_members"),
    _api(ApiKey.SYNC_GROUP, (0, 5), 4, "group_members"),
    _api(ApiKey.DESCRIBE_GROUPS, (0, 6), 5, "groups"),
    _api(ApiKey.LIST_GROUPS, (0, 5), 3, "groups"),
    _api(ApiKey.SASL_HANDSHAKE, (0, 1), _NEVER, "login"),
    _api(ApiKey.API_VERSIONS, (0, 4), 3, "metadata"),
    _api(ApiKey.CREATE_TOPICS, (2, 7), 5, "topics"),
    _api(ApiKey.DELETE_TOPICS, (1, 6), 4, "topics"),
    _api(ApiKey.DELETE_RECORDS, (0, 2), 2, "offsets"),
    _api(ApiKey.INIT_PRODUCER_ID, (0, 5), 2, "producers"),
    # From 2: librdkafka asks for exactly this version.
    _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4), 4, "offsets"),
    # 4 and 5 are for requests between nodes; advertised to clients, too, as by Apache Kafka.
    _api(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 5), 3, "transactions"),
    _api(ApiKey.ADD_OFFSETS_TO_TXN, (0, 4), 3, "transactions"),
    _api(ApiKey.END_TXN, (0, 5), 3, "transactions"),
    # Also for tools that end a hanging transaction.
    _api(ApiKey.WRITE_TXN_MARKERS, (1, 2), 1, "transactions"),
    _api(ApiKey.TXN_OFFSET_COMMIT, (0, 5), 3, "group_offsets"),
    _api(ApiKey.DESCRIBE_ACLS, (1, 3), 2, "acls"),
    _api(ApiKey.CREATE_ACLS, (1, 3), 2, "acls"),
    _api(ApiKey.DELETE_ACLS, (1, 3), 2, "acls"),
    _api(ApiKey.DESCRIBE_CONFIGS, (1, 4), 4, "configs"),
    _api(ApiKey.ALTER_CONFIGS, (0, 2), 2, "configs"),
    _api(ApiKey.DESCRIBE_LOG_DIRS, (1, 5), 2, "cluster"),
    _api(ApiKey.SASL_AUTHENTICATE, (0, 2), 2, "login"),
    _api(ApiKey.CREATE_PARTITIONS, (0, 3), 2, "topics"),
    _api(ApiKey.DELETE_GROUPS, (0, 2), 2, "groups"),
    _api(ApiKey.ELECT_LEADERS, (0, 2), 2, "replicas"),
    _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), 1, "configs"),
    _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 1), 0, "replicas"),
    _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), 0, "replicas"),
    _api(ApiKey.OFFSET_DELETE, (0, 0), _NEVER, "group_offsets"),
    _api(ApiKey.DESCRIBE_CLIENT_QUOTAS, (0, 1), 1, "quotas"),
    _api(ApiKey.ALTER_CLIENT_QUOTAS, (0, 1), 1, "quotas"),
    _api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, (0, 0), 0, "users"),
    _api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (0, 0), 0, "users"),
    # From 3: with the broker epoch of each in-sync replica.
    _api(ApiKey.ALTER_PARTITION, (3, 3), 0, "replicas"),
    _api(ApiKey.ENVELOPE, (0, 0), 0, "envelope"),
    _api(ApiKey.DESCRIBE_CLUSTER, (0, 2), 0, "cluster"),
    _api(ApiKey.DESCRIBE_PRODUCERS, (0, 0), 0, "producers"),
    _api(ApiKey.BROKER_HEARTBEAT, (0, 0), 0, "cluster"),
    _api(ApiKey.UNREGISTER_BROKER, (0, 0), 0, "cluster"),
    _api(ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), 0, "transactions"),
    _api(ApiKey.LIST_TRANSACTIONS, (0, 2), 0, "transactions"),
    _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 1), 0, "group_members"),
    _api(ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1), 0, "groups"),
    _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0, 0), 0, "metadata"),
)

_SPOKEN_OTHERWISE = (
    # Up to 3: later versions are for requests between brokers.
    _api(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 3), 3, "client"),
)

APIS: Mapping[int, Api] = MappingProxyType({api.key.value: api for api in _TABLE})
NODE_APIS = frozenset({ApiKey.ALTER_PARTITION, ApiKey.ENVELOPE, ApiKey.BROKER_HEARTBEAT})
"""For requests between nodes only; advertised on the listener of nodes only."""
SPOKEN_APIS: Mapping[int, Api] = MappingProxyType(
    {**APIS, **{api.key.value: api for api in _SPOKEN_OTHERWISE}}
)
"""APIs as the client speaks them: those served here, one in fewer versions."""


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


_FIXED = struct.Struct(">hhih")
_unpack_fixed = _FIXED.unpack_from
_new_header = tuple.__new__
_FLEXIBLE_VERSIONS = {api.key.value: range(api.flexible_from, api.max_version + 1) for api in _TABLE}
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
