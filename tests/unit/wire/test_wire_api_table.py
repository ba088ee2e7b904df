# SPDX-License-Identifier: Apache-2.0
"""The table of APIs against kio's own knowledge, and request headers."""

from __future__ import annotations

import struct

import pytest

from headrace.errors import DecodeError
from headrace.wire.api_table import (
    APIS,
    SPOKEN_APIS,
    RequestHeader,
    read_request_header,
)
from headrace.wire.kio_codec.schema import message_class, message_versions

FAMILIES = {
    "acls", "cluster", "configs", "coordinators", "envelope", "fetch", "group_members", "group_offsets",
    "groups", "login", "metadata", "offsets", "produce", "producers", "quotas", "replicas", "topics",
    "transactions", "users",
}  # fmt: skip


def read(data: bytes) -> RequestHeader:
    return read_request_header(memoryview(data), 0, len(data))


@pytest.mark.parametrize("key", SPOKEN_APIS)
def test_kio_knows_every_version_that_is_accepted(key: int) -> None:
    api = SPOKEN_APIS[key]
    assert api.key == key
    assert api.family in FAMILIES if api is APIS.get(key) else api.family == "client"
    assert set(api.accepted) <= set(message_versions(api.name))
    for version in api.accepted:
        request = message_class(api.name, version, "request")
        response = message_class(api.name, version, "response")
        assert request.__api_key__ == response.__api_key__ == key
        assert request.__flexible__ == response.__flexible__ == (version >= api.flexible_from)
        assert (version >= api.flexible_from) == (request.__header_schema__.__version__ == 2)
        assert (version >= api.flexible_reply_from) == (response.__header_schema__.__version__ == 1)


def test_produce_is_advertised_from_0_and_accepted_from_3() -> None:
    """Older librdkafka silently stops compressing when the lowest version is 3."""
    produce = APIS[0]
    assert (produce.min_version, produce.accepted.start, produce.max_version) == (0, 3, 13)
    assert 2 not in produce.accepted
    assert 14 not in produce.accepted


def test_the_reply_to_api_versions_never_has_tagged_fields_in_its_header() -> None:
    assert APIS[18].flexible_reply_from > APIS[18].max_version
    assert APIS[18].flexible_from == 3


def test_offset_for_leader_epoch_starts_where_librdkafka_asks() -> None:
    assert APIS[23].min_version == 2


def test_the_client_leaves_versions_of_add_partitions_to_nodes() -> None:
    """From 4 on it is a request between brokers."""
    assert (SPOKEN_APIS[24].max_version, APIS[24].max_version) == (3, 5)


@pytest.mark.parametrize(("length", "name"), [(-1, None), (-7, None), (0, ""), (4, "früh"[:4])])
def test_client_ids_may_be_null_empty_or_text(length: int, name: str | None) -> None:
    raw = b"" if name is None else name.encode()
    header = read(struct.pack(">hhih", 0, 3, -5, length if length < 1 else len(raw)) + raw + b"body")
    assert header == (0, 3, -5, name, 10 + len(raw))


def test_a_flexible_header_ends_after_its_tagged_fields() -> None:
    plain = struct.pack(">hhih", 3, 9, 1, 2) + b"me"
    assert read(plain + b"\0body").body_position == 13
    assert read(plain + b"\2\5\3abc\x90\1\1z" + b"body").body_position == 22


def test_unknown_keys_and_versions_are_handed_on() -> None:
    for key, version in ((9999, 0), (18, 77), (3, 14), (-1, -1)):
        data = struct.pack(">hhih", key, version, 42, 2) + b"me" + b"\xff\xff\xff\xff\xff\xff"
        assert read(data) == (key, version, 42, "me", 12)


def test_a_client_id_that_runs_past_the_frame_is_refused() -> None:
    with pytest.raises(DecodeError, match="client id of 9"):
        read(struct.pack(">hhih", 0, 3, 1, 9) + b"short")
