# SPDX-License-Identifier: Apache-2.0
"""The codec of OffsetCommit on one connection decodes as the general reader does."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from headrace.errors import DecodeError
from headrace.wire.api_table import read_request_header
from headrace.wire.error_codes import ErrorCode
from headrace.wire.requests.offset_commit import (
    CommitTopics,
    OffsetCommitRequest,
    read_offset_commit,
    write_offset_commit_reply,
)
from headrace.wire.requests.offset_commit_codec import OffsetCommitCodec
from tests.harness.groups import wire as group_wire

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


def read(version: int, data: bytes) -> OffsetCommitRequest:
    view = memoryview(data)
    header = read_request_header(view, 4, len(view))
    return read_offset_commit(version, view, header.body_position, len(view))


def decode(codec: OffsetCommitCodec, data: bytes) -> OffsetCommitRequest:
    view = memoryview(data)
    recognised = codec.recognise(9, view, 4, len(view))
    return recognised or codec.decode(read_request_header(view, 4, len(view)), view, 4, len(view))


def trained(version: int, **fields: Any) -> tuple[OffsetCommitCodec, CommitTopics]:
    """After two requests of the same partitions; and the topics that later ones share."""
    codec = OffsetCommitCodec()
    decode(codec, frame(version, base=0, **fields))
    return codec, decode(codec, frame(version, base=1, **fields)).topics


@pytest.mark.parametrize("version", range(7, 11))
@pytest.mark.parametrize("note", [None, "", "a note"])
def test_a_repetition_is_read_as_by_the_general_reader(version: int, note: str | None):
    codec, topics = trained(version, note=note)
    again = frame(version, base=2**40, epoch=9, note=note, correlation_id=77)
    found = decode(codec, again)
    assert found == read(version, again)
    assert found.topics is topics


@pytest.mark.parametrize("version", range(7, 11))
def test_the_reply_is_the_general_one(version: int):
    topics = read(version, frame(version, base=0)).topics
    for correlation_id in (-5, 6):
        expected = write_offset_commit_reply(version, correlation_id, topics, [ErrorCode.none] * 6)
        assert topics.accepted_reply(version, correlation_id) == expected


@pytest.mark.parametrize(
    "other", [{"generation": 6}, {"note": "x"}, {"client_id": "another-one"}, {"client_id": "group-tesT"}]
)
def test_commits_that_differ_in_more_than_offsets_are_not_recognised(other: dict[str, Any]):
    codec, topics = trained(9)
    data = frame(9, base=0, **other)
    found = decode(codec, data)
    assert found == read(9, data)
    assert found.topics is not topics


def test_a_frame_that_is_cut_off_is_malformed():
    codec, _ = trained(9)
    view = memoryview(frame(9, base=1))
    assert codec.recognise(9, view, 4, len(view) - 9) is None
    with pytest.raises(DecodeError):
        codec.decode(read_request_header(view, 4, len(view)), view, 4, len(view) - 9)


def test_versions_with_other_fields_are_decoded_each_time():
    codec, topics = trained(6)
    data = frame(6, base=5)
    assert decode(codec, data) == read(6, data)
    assert decode(codec, data).topics is not topics
