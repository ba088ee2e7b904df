# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import uuid

import pytest

from headrace.client_quotas import DEFAULT, QuotaEntity
from headrace.coordination import documents
from headrace.coordination.projection import Projection
from headrace.coordination.store import Changes, Entry, View, is_key
from headrace.errors import CoordinationError
from headrace.types import PartitionState, Topic


def entry(value: bytes, version: int = 1) -> Entry:
    return Entry(value=value, version=version, created=1)


def test_every_document_carries_its_format() -> None:
    assert json.loads(documents.encode(id="x")) == {"format": 1, "id": "x"}


def test_a_newer_format_is_refused_by_key() -> None:
    with pytest.raises(CoordinationError, match="/topics/t has format 2, written by a newer Headrace"):
        documents.decode("/topics/t", b'{"format":2}')


BAD_MOVES = documents.encode(id=str(uuid.UUID(int=5)), configs={}, partitions=[], moves=[])
STRANGE = [b"", b"\xff", b"[]", b"{}", b"3", b'{"format":"x"}', b'{"format":1e999}', b"[" * 100_000]


@pytest.mark.parametrize("value", STRANGE, ids=lambda value: value[:20])
def test_an_invalid_document_is_refused_with_its_key(value: bytes) -> None:
    with pytest.raises(CoordinationError, match="/cluster"):
        documents.decode("/cluster", value)


def test_fields_of_a_later_minor_change_are_ignored() -> None:
    value = documents.encode(id=str(uuid.uuid4()), configs={}, partitions=[], colour="blue")
    assert documents.decode_topic("/topics/t", value, "t").partitions == ()


def test_a_thousand_partitions_with_three_replicas_fit_an_entry_ten_times_over() -> None:
    state = PartitionState(
        replicas=(101, 102, 103), leader=101, leader_epoch=12, isr=(101, 103), partition_epoch=30
    )
    topic = Topic(name="t", topic_id=uuid.uuid4(), partitions=(state,) * 1000)
    assert len(documents.encode_topic(topic)) < 130_000


@pytest.mark.parametrize("node", ["", "1", "42"])
def test_keys_of_node_settings_lead_back_to_their_node(node: str) -> None:
    assert documents.configured_node_of_key(documents.node_configs_key(node)) == node


@pytest.mark.parametrize(
    "entity",
    [
        QuotaEntity("alice"),
        QuotaEntity(DEFAULT),
        QuotaEntity(".default", "a/b.c_d~%"),
        QuotaEntity("CN=käthe, O=x", DEFAULT),
        QuotaEntity(client_id="app"),
        QuotaEntity(ip="2001:db8::1"),
        QuotaEntity(ip=DEFAULT),
    ],
)
def test_keys_of_quotas_lead_back_to_their_entity(entity: QuotaEntity) -> None:
    key = documents.quotas_key(entity)
    assert is_key(key)
    assert documents.quota_entity_of_key(key) == entity


def test_keys_of_different_kinds_are_distinct() -> None:
    assert documents.topic_of_key("/topics/nodes") == "nodes"
    assert documents.node_of_key("/topics/1") is None
    assert documents.topic_of_key("/topicsx") is None
    assert documents.configured_node_of_key("/nodes/1") is None


def test_an_unreadable_entry_is_named_and_leaves_the_view_as_it_was() -> None:
    projection = Projection(View(version=1, entries={"/cluster": entry(documents.encode(id="c"))}))
    before = projection.view
    with pytest.raises(CoordinationError, match="/topics/bad"):
        projection.apply(
            Changes(version=2, changed={"/topics/bad": entry(documents.encode(id="no uuid", configs={}))})
        )
    assert projection.view is before
    assert "/topics/bad" not in projection.versions


@pytest.mark.parametrize("key", [documents.PRODUCER_IDS, documents.NODE_SECRET, "/topics/bad", "/nodes/1"])
@pytest.mark.parametrize("value", [*STRANGE, BAD_MOVES], ids=lambda value: value[:20])
def test_no_unreadable_entry_changes_anything(key: str, value: bytes) -> None:
    projection = Projection(View(version=1, entries={"/cluster": entry(documents.encode(id="c"))}))
    before = projection.view
    with pytest.raises(CoordinationError, match=key):
        projection.apply(Changes(version=2, changed={key: entry(value)}))
    assert (projection.view, projection.next_producer_id, projection.node_secret) == (before, 0, b"")
    assert key not in projection.versions


def test_unknown_keys_are_left_to_those_who_know_them() -> None:
    projection = Projection(View(version=3, entries={"/from/the/future": entry(b"anything")}))
    assert projection.view.version == 3
    assert projection.versions == {"/from/the/future": 1}
