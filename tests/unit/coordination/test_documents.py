from __future__ import annotations

import json
import uuid

import pytest

from headrace.coordination import documents
from headrace.coordination.projection import Projection
from headrace.coordination.store import Changes, Entry, View
from headrace.errors import CoordinationError
from headrace.types import PartitionState, Topic


def entry(value: bytes, version: int = 1) -> Entry:
    return Entry(value=value, version=version, created=1)


def test_every_document_carries_its_format() -> None:
    assert json.loads(documents.encode(id="x")) == {"format": 1, "id": "x"}


def test_a_newer_format_is_refused_by_key() -> None:
    with pytest.raises(CoordinationError, match="/topics/t has format 2; upgrade this node"):
        documents.decode("/topics/t", b'{"format":2}')


@pytest.mark.parametrize("value", [b"", b"\xff", b"[]", b"{}", b"3", b'{"format":"x"}'])
def test_what_is_no_document_is_refused_by_key(value: bytes) -> None:
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


def test_keys_of_one_kind_are_not_taken_for_another() -> None:
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


def test_unknown_keys_are_left_to_those_who_know_them() -> None:
    projection = Projection(View(version=3, entries={"/from/the/future": entry(b"anything")}))
    assert projection.view.version == 3
    assert projection.versions == {"/from/the/future": 1}
