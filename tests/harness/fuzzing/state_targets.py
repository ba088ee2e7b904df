# SPDX-License-Identifier: Apache-2.0
"""Targets: what a node loads from its group log and from the coordination store.

Records that cannot be read are skipped, those of a later version end the load, documents raise
CoordinationError: nothing else may happen, whatever stands there.
Read next: catalog.py, headrace/broker/coordinators/machine_loading.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress

from headrace.broker.coordinators.machine_loading import MachineLoading
from headrace.broker.groups.group_log import read_group_record
from headrace.coordination import documents
from headrace.coordination.projection import Projection
from headrace.coordination.store import Changes, Entry, View
from headrace.errors import CoordinationError, NewerFormatError
from headrace.machines.groups.events import RetentionCheck
from headrace.machines.groups.group import Group, GroupSettings
from headrace.machines.machine import Loaded, Now
from headrace.types import ClusterView, Endpoint, FinalizedFeatures, Move, Node, PartitionState, Topic
from headrace.wire.batch import read_header
from headrace.wire.coordinator.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadata,
    ConsumerGroupMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    CurrentMemberAssignment,
    ResolvedRegularExpression,
    TargetAssignmentMetadata,
    TopicPartitions,
)
from headrace.wire.coordinator.group_records import (
    CommittedOffset,
    GroupMetadata,
    GroupMetadataRecord,
    GroupRecord,
    MemberMetadata,
    OffsetCommitRecord,
    encode,
)
from headrace.wire.records import Record, build_batch
from tests.harness.fuzzing.target import Target

_NO_VALUE = 0xFFFF
_TOPIC_ID = uuid.UUID(int=5)
_NOW = Now(1_000_000, 1_700_000_000_000)
_SUBSCRIPTION = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0"
_PARTITIONS = (TopicPartitions(topic_id=_TOPIC_ID, partitions=(0, 1)),)


def load_groups(data: bytes) -> None:
    """Keys and values, each behind its size: they are applied, and the groups begin their service."""
    pairs = _unpacked(data)
    if not pairs:
        return
    view = ClusterView(version=1, cluster_id="fuzz")
    loading = MachineLoading[Group](
        "the group log", lambda name: Group(name, GroupSettings(), view), read_group_record
    )
    for transactional, control in ((False, False), (True, False), (True, True)):
        batch = memoryview(
            build_batch(
                [Record(place, 0, key, value) for place, (key, value) in enumerate(pairs)],
                producer_id=7 if transactional else -1,
                is_transactional=transactional,
                is_control=control,
            )
        )
        with suppress(NewerFormatError):
            loading._apply_batch(read_header(batch), batch)
    for machine in loading.machines.values():
        machine.step(Loaded(), _NOW)
        machine.step(RetentionCheck(), _NOW)


def _unpacked(data: bytes) -> list[tuple[bytes | None, bytes | None]]:
    parts: list[bytes | None] = []
    position = 0
    while position + 2 <= len(data):
        size = int.from_bytes(data[position : position + 2], "big")
        position += 2
        if size == _NO_VALUE:
            parts.append(None)
        else:
            parts.append(data[position : position + size])
            position += size
    return list(zip(parts[::2], parts[1::2], strict=False))


def _packed(*records: GroupRecord) -> bytes:
    parts = [part for record in records for part in encode(record)]
    return b"".join(
        _NO_VALUE.to_bytes(2, "big") if part is None else len(part).to_bytes(2, "big") + part
        for part in parts
    )


def _group_logs() -> Sequence[bytes]:
    classic, consumer = _classic_group(), _consumer_group()
    offset = CommittedOffset(5, 1, "m", 10, -1, _TOPIC_ID)
    commit = OffsetCommitRecord(group_id="g", topic="t", partition=0, value=offset)
    gone = OffsetCommitRecord(group_id="g", topic="t", partition=0, value=None)
    single = [_packed(record) for record in (*consumer, *classic, commit, gone)]
    whole = (
        _packed(*consumer, commit),
        _packed(*classic, commit, gone),
        _packed(*consumer, *classic, *consumer),
    )
    return [*single, *whole]


def _classic_group() -> Sequence[GroupRecord]:
    member = MemberMetadata(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/1.2.3.4",
        rebalance_timeout_ms=5000,
        session_timeout_ms=6000,
        subscription=_SUBSCRIPTION,
        assignment=b"\0\1\0\0\0\0\0\0\0\0",
    )
    value = GroupMetadata(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m",
        current_state_timestamp=9,
        members=(member,),
    )
    return GroupMetadataRecord(group_id="g", value=value), GroupMetadataRecord(group_id="g", value=None)


def _consumer_group() -> Sequence[GroupRecord]:
    classic = ClassicMemberMetadata(session_timeout_ms=6000, supported_protocols=(("range", _SUBSCRIPTION),))
    about = [
        ConsumerGroupMemberMetadata(
            client_id="c", client_host="/1", subscribed_topic_names=("t",), classic=classic
        ),
        ConsumerGroupMemberMetadata(
            client_id="c", client_host="/1", subscribed_topic_regex="t.*", instance_id="i"
        ),
    ]
    current = CurrentMemberAssignment(
        member_epoch=2,
        previous_member_epoch=1,
        state=0,
        assigned_partitions=_PARTITIONS,
        partitions_pending_revocation=_PARTITIONS,
    )
    found = ResolvedRegularExpression(topics=("t",), version=1, timestamp=5)
    target = TargetAssignmentMetadata(assignment_epoch=2)
    return [
        ConsumerGroupMetadataRecord(group_id="g", value=ConsumerGroupMetadata(epoch=2)),
        *(
            ConsumerGroupMemberMetadataRecord(group_id="g", member_id=str(place), value=value)
            for place, value in enumerate(about)
        ),
        ConsumerGroupTargetAssignmentMetadataRecord(group_id="g", value=target),
        ConsumerGroupTargetAssignmentMemberRecord(group_id="g", member_id="0", value=_PARTITIONS),
        ConsumerGroupCurrentMemberAssignmentRecord(group_id="g", member_id="0", value=current),
        ConsumerGroupRegularExpressionRecord(group_id="g", regular_expression="t.*", value=found),
        ConsumerGroupCurrentMemberAssignmentRecord(group_id="g", member_id="0", value=None),
        ConsumerGroupMemberMetadataRecord(group_id="g", member_id="0", value=None),
        ConsumerGroupTargetAssignmentMemberRecord(group_id="g", member_id="0", value=None),
    ]


def read_document(data: bytes) -> None:
    """The first byte chooses the key; a view that a bad entry cannot change stays as it was."""
    if not data:
        return
    key = _KEYS[data[0] % len(_KEYS)]
    projection = Projection(View(version=1, entries={}))
    before, versions = projection.view, dict(projection.versions)
    try:
        projection.apply(Changes(version=2, changed={key: Entry(value=data[1:], version=2, created=2)}))
    except CoordinationError:
        assert projection.view is before
        assert projection.versions == versions
    with suppress(CoordinationError):
        documents.decode(key, data[1:])


_KEYS = (
    documents.topic_key("t"),
    documents.node_key(1),
    documents.admission_key(1),
    documents.node_configs_key("1"),
    documents.group_configs_key("g"),
    documents.CONTROLLER,
    documents.CONTROLLER_EPOCH,
    documents.NODE_LOGIN,
    documents.CLUSTER,
    documents.PRODUCER_IDS,
    documents.NODE_SECRET,
    documents.FEATURES,
    documents.user_key("u"),
    documents._ACLS + "x",
    documents._QUOTAS + "users/u",
)


def _documents() -> Sequence[bytes]:
    state = PartitionState(replicas=(1, 2), leader=1, leader_epoch=3, isr=(1,), partition_epoch=4, elr=(2,))
    moves = {0: Move(original=(1, 2), target=(2, 3))}
    topic = Topic(name="t", topic_id=_TOPIC_ID, partitions=(state,), configs={"a": "b"}, moves=moves)
    node = Node(
        node_id=1,
        epoch=2,
        host_id="h",
        hostname="h",
        endpoints=(Endpoint(listener="main", host="h", port=1),),
        offline=frozenset({(_TOPIC_ID, 0)}),
        offline_epochs=frozenset({(_TOPIC_ID, 0, 3)}),
        logs_in=True,
        transaction_versions=(0, 2),
    )
    admission = documents.Admission(epoch=2, fenced=False)
    configs = documents.encode_configs({"a": "b"})
    values = (
        documents.encode_topic(topic),
        documents.encode_node(node, waits=True),
        documents.encode_admission(admission),
        configs,
        configs,
        documents.encode(node=1),
        documents.encode(epoch=3),
        documents.encode(required=True),
        documents.encode(id="c"),
        documents.encode(next=1000),
        documents.encode_secret(b"s" * 32),
        documents.encode_features(FinalizedFeatures(epoch=1, levels={"transaction.version": 2})),
    )
    sound = [bytes([place]) + value for place, value in enumerate(values)]
    strange = (
        b"null",
        b"[]",
        b"{}",
        b'{"format":1e999}',
        b"[" * 100_000,
        b'{"format":1,"moves":[],"configs":7}',
    )
    return sound + [bytes([place]) + value for place in range(len(_KEYS)) for value in strange]


STATE_TARGETS = (
    Target(name="group-log", run=load_groups, sound=_group_logs),
    Target(name="documents", run=read_document, sound=_documents),
)
