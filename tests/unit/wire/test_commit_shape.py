"""The short way through an OffsetCommit request sees what the general reader sees, or nothing."""

from __future__ import annotations

import uuid

import pytest

from headrace.testing import group_wire
from headrace.wire.api_table import read_request_header
from headrace.wire.commit_shape import CommitShape
from headrace.wire.error_codes import ErrorCode
from headrace.wire.offset_commit import AskedCommit, read_offset_commit, write_offset_commit_reply

TOPIC_IDS = [uuid.UUID(int=7), uuid.UUID(int=8)]


def frame(
    version: int, *, base: int, epoch: int = 3, generation: int = 5, note: str | None = "", **request
) -> bytes:
    topics = [
        {
            **({"topic_id": TOPIC_IDS[at]} if version >= 10 else {"name": f"topic-{at}"}),
            "partitions": [
                {
                    "partition_index": index,
                    "committed_offset": base + index,
                    "committed_leader_epoch": epoch + index,
                    "committed_metadata": note,
                }
                for index in range(3)
            ],
        }
        for at in range(2)
    ]
    fields = {
        "group_id": "g",
        "generation_id_or_member_epoch": generation,
        "member_id": "m",
        "group_instance_id": None,
        "topics": topics,
    }
    return group_wire.request("offset_commit", fields, version=version, **request)


def read(version: int, data: bytes) -> AskedCommit:
    view = memoryview(data)
    header = read_request_header(view, 4, len(view))
    return read_offset_commit(version, view, header.body_position, len(view))


def shape_of(version: int, **fields) -> CommitShape | None:
    return CommitShape.of(version, "group-test", read(version, frame(version, base=0, **fields)))


@pytest.mark.parametrize("version", range(7, 11))
@pytest.mark.parametrize("note", [None, "", "a note"])
def test_a_repetition_is_read_as_by_the_general_reader(version: int, note: str | None):
    shape = shape_of(version, note=note)
    assert shape is not None
    again = frame(version, base=2**40, epoch=9, note=note, correlation_id=77)
    found = shape.read(memoryview(again), 0, len(again))
    assert found is not None
    places = [place for topic in read(version, again).topics for place in topic.offsets]
    assert found.correlation_id == 77
    assert list(zip(found.offsets, found.leader_epochs, strict=True)) == [each[1:3] for each in places]
    assert shape.size == len(again)


@pytest.mark.parametrize("version", range(7, 11))
def test_the_reply_is_the_general_one(version: int):
    shape = shape_of(version)
    assert shape is not None
    topics = read(version, frame(version, base=0)).topics
    assert shape.accepted(-5) == write_offset_commit_reply(version, -5, topics, [ErrorCode.none] * 6)


@pytest.mark.parametrize(
    "other", [{"generation": 6}, {"note": "x"}, {"client_id": "another-one"}, {"client_id": "group-tesT"}]
)
def test_what_differs_in_more_than_positions_is_not_recognised(other: dict[str, object]):
    shape = shape_of(9)
    assert shape is not None
    data = memoryview(frame(9, base=0, **other))
    assert shape.read(data, 0, len(data)) is None


def test_half_a_frame_is_not_recognised_and_a_later_one_is():
    shape = shape_of(9)
    assert shape is not None
    data = frame(9, base=1)
    view = memoryview(data + data)
    assert shape.read(view, 0, len(data) - 1) is None
    found = shape.read(view, len(data), 2 * len(data))
    assert found is not None
    assert found.offsets[0] == 1


def test_versions_with_other_fields_have_no_shape():
    assert shape_of(6) is None
