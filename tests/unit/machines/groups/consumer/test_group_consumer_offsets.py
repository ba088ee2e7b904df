# SPDX-License-Identifier: Apache-2.0
"""Who may commit and fetch offsets in a KIP-848 group (OffsetCommit and OffsetFetch 9 and above)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.errors import ApiError
from headrace.machines.groups.events import OffsetCommit, OffsetFetch
from headrace.wire.coordinator.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataRecord,
)
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups.consumer_groups import GroupDriver, topic_id

T = topic_id("t")


def grown_group() -> GroupDriver:
    """Member a is at epoch 3, holds t-0 since epoch 2 and t-1 since epoch 3."""
    group = GroupDriver({"t": 1})
    group.join("a", "t")
    group.set_topics({"t": 2})
    assert group.heartbeat("a", 2).member_epoch == 3
    return group


def commit(group: GroupDriver, partition: int = 0, **fields: Any) -> ErrorCode:
    request = OffsetCommit.of(
        **{"token": group.new_token(), "version": 9, "offsets": (), "member_id": "a", **fields}
    )
    try:
        check = group.machine.check_offset_commit(request)
        if check is not None:
            check("t", T, partition)
    except ApiError as refusal:
        return refusal.code
    return ErrorCode.none


@pytest.mark.parametrize(
    ("partition", "fields", "expected"),
    [
        (0, {"generation": 3}, ErrorCode.none),
        (7, {"generation": 3}, ErrorCode.none),
        (0, {"generation": 4}, ErrorCode.stale_member_epoch),
        (0, {"generation": 2}, ErrorCode.none),
        (1, {"generation": 2}, ErrorCode.stale_member_epoch),
        (0, {"generation": 1}, ErrorCode.stale_member_epoch),
        (7, {"generation": 2}, ErrorCode.stale_member_epoch),
        (0, {"generation": 3, "member_id": "b"}, ErrorCode.unknown_member_id),
        (0, {"generation": -1, "member_id": ""}, ErrorCode.unknown_member_id),
        (0, {"generation": 3, "version": 8}, ErrorCode.unsupported_version),
        (0, {"generation": 3, "version": 8, "producer_id": 7}, ErrorCode.none),
        (0, {"generation": -1, "member_id": "", "producer_id": 7}, ErrorCode.none),
        (
            0,
            {"generation": -1, "member_id": "", "producer_id": 7, "group_instance_id": "i"},
            ErrorCode.unknown_member_id,
        ),
    ],
    ids=str,
)
def test_a_commit_counts_when_the_member_holds_the_partition_since_that_epoch(
    partition: int, fields: dict[str, Any], expected: ErrorCode
) -> None:
    assert commit(grown_group(), partition, **fields) is expected


def test_a_partition_still_to_be_given_up_may_be_committed_and_one_given_up_may_not() -> None:
    group = GroupDriver({"t": 2})
    group.join("a", "t")
    group.join("b", "t")
    group.heartbeat("a", 2)
    assert commit(group, 1, generation=2) is ErrorCode.none
    assert group.heartbeat("a", 2, owned_partitions={T: frozenset({0})}).member_epoch == 3
    assert commit(group, 1, generation=2) is ErrorCode.stale_member_epoch
    assert commit(group, 0, generation=2) is ErrorCode.none


def test_an_empty_group_takes_commits_without_a_member() -> None:
    group = GroupDriver({"t": 1})
    assert commit(group, member_id="", generation=-1) is ErrorCode.none
    group.join("a", "t")
    assert commit(group, member_id="", generation=-1) is ErrorCode.unknown_member_id
    group.heartbeat("a", -1)
    assert commit(group, member_id="", generation=-1) is ErrorCode.none
    assert commit(group, member_id="a", generation=2) is ErrorCode.unknown_member_id


def test_the_successor_of_a_static_member_may_commit_what_it_took_over() -> None:
    group = GroupDriver({"t": 2})
    group.join("a", "t", instance_id="i")
    group.heartbeat("a", -2, instance_id="i")
    epoch = group.join("a2", "t", instance_id="i").member_epoch
    assert commit(group, member_id="a2", generation=epoch) is ErrorCode.none
    assert commit(group, member_id="a2", generation=1) is ErrorCode.none, "epochs of the old one begin at 0"
    assert commit(group, member_id="a", generation=epoch) is ErrorCode.unknown_member_id


@pytest.mark.parametrize(
    ("member_id", "epoch", "expected"),
    [
        (None, -1, ErrorCode.none),
        ("a", 3, ErrorCode.none),
        ("a", 2, ErrorCode.stale_member_epoch),
        ("a", 4, ErrorCode.stale_member_epoch),
        ("b", 3, ErrorCode.unknown_member_id),
        (None, 3, ErrorCode.unknown_member_id),
    ],
    ids=str,
)
def test_a_fetch_needs_the_present_epoch_or_no_member_at_all(
    member_id: str | None, epoch: int, expected: ErrorCode
) -> None:
    group = grown_group()
    request = OffsetFetch(
        token=group.new_token(), version=9, partitions=None, member_id=member_id, member_epoch=epoch
    )
    try:
        group.machine.check_offset_fetch(request)
        found = ErrorCode.none
    except ApiError as refusal:
        found = refusal.code
    assert found is expected


def test_a_classic_member_gets_generation_errors() -> None:
    group = grown_group()
    metadata = replace(
        group.machine.state.members["a"].metadata,
        classic=ClassicMemberMetadata(session_timeout_ms=45_000, supported_protocols=(("range", b""),)),
    )
    group.write(ConsumerGroupMemberMetadataRecord(group_id="group", member_id="a", value=metadata))
    assert commit(group, generation=4, version=8) is ErrorCode.illegal_generation
    assert commit(group, generation=1, version=8) is ErrorCode.illegal_generation
    assert commit(group, generation=3, version=8) is ErrorCode.none
    assert group.machine.describe().members[0].member_type == 0
