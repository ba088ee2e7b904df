# SPDX-License-Identifier: Apache-2.0
"""OffsetCommit's own code against kio: the same values from any request, the same bytes for any reply."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import DecodeError
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS
from headrace.wire.requests.offset_commit import (
    CommitTopic,
    CommitTopics,
    OffsetCommitRequest,
    read_offset_commit,
    write_offset_commit_reply,
)
from tests.property.wire.kio_oracle import QUICK, class_of, decode, encode, entities, reply_body

VERSIONS = [
    (ApiKey.OFFSET_COMMIT, version) for version in range(2, APIS[ApiKey.OFFSET_COMMIT].max_version + 1)
]
MILLISECOND = datetime.timedelta(milliseconds=1)

every_version = pytest.mark.parametrize("case", VERSIONS, ids=lambda case: f"v{case[1]}")


def expected(request: Any) -> OffsetCommitRequest:
    partitions = [part for topic in request.topics for part in topic.partitions]
    return OffsetCommitRequest(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        getattr(request, "group_instance_id", None),
        getattr(request, "retention_time", -MILLISECOND) // MILLISECOND,
        CommitTopics(
            CommitTopic(
                getattr(topic, "name", ""),
                getattr(topic, "topic_id", None),
                [(part.partition_index, part.committed_metadata) for part in topic.partitions],
            )
            for topic in request.topics
        ),
        tuple(part.committed_offset for part in partitions),
        tuple(getattr(part, "committed_leader_epoch", -1) for part in partitions),
    )


@every_version
def test_every_request_is_read_as_kio_reads_it(case: tuple[int, int]) -> None:
    @QUICK
    @given(entities(class_of(case, "request")))
    def check(request: Any) -> None:
        data = memoryview(encode(request) + b"more")
        assert read_offset_commit(case[1], data, 0, len(data) - 4) == expected(request)

    check()


@every_version
def test_every_reply_is_read_by_kio(case: tuple[int, int]) -> None:
    cls = class_of(case, "response")

    @QUICK
    @given(entities(class_of(case, "request")), st.sampled_from([0, 3, 25, 28]))
    def check(request: Any, code: int) -> None:
        topics = expected(request).topics
        count = sum(len(topic.partitions) for topic in topics)
        frame = write_offset_commit_reply(case[1], 7, topics, [code] * count)
        reply = decode(cls, reply_body(cls, frame, 7))
        answered = [
            (part.partition_index, part.error_code) for topic in reply.topics for part in topic.partitions
        ]
        assert answered == [(place[0], code) for topic in topics for place in topic.partitions]

    check()


@every_version
def test_whatever_is_cut_off_is_refused(case: tuple[int, int]) -> None:
    @QUICK
    @given(entities(class_of(case, "request")), st.data())
    def check(request: Any, data: st.DataObject) -> None:
        whole = encode(request)
        cut = data.draw(st.integers(0, len(whole) - 1))
        with pytest.raises(DecodeError):
            read_offset_commit(case[1], memoryview(whole), 0, cut)

    check()


def test_more_topics_than_a_request_may_have_are_refused() -> None:
    count = 400_000
    data = b"\2g" + bytes(4) + b"\1\0" + b"\x81\xb5\x18" + b"\1\1\0" * count + b"\0"
    with pytest.raises(DecodeError, match="too many array items"):
        read_offset_commit(8, memoryview(data), 0, len(data))
