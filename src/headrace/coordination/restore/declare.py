# SPDX-License-Identifier: Apache-2.0
"""Declares a restored coordination store to be the one to go on with, so that acknowledged records stay.

The in-sync replicas of an older store may be behind by now, and its epochs were used since. So no replica
counts as in sync: a partition waits until all of its replicas run, and the longest log leads (R19b). Leader,
partition and controller epochs and producer ids skip far beyond what may have been used. The declaration
comes last: until then the nodes refuse the store, and an interrupted run can be repeated.
Read next: recovery/history.py, docs/decisions/0040.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from headrace.coordination import api_errors, documents
from headrace.coordination.bulk_operations import BulkOperation, chunks
from headrace.coordination.outcomes import commit_resolving_unknown
from headrace.coordination.recovery import history
from headrace.coordination.recovery.history import StoreHistory
from headrace.coordination.store import (
    WHOLE_STORE,
    Applied,
    Check,
    Create,
    Operation,
    Set,
    Store,
    View,
)
from headrace.errors import CoordinationError
from headrace.types import NO_NODE, PartitionState, Topic

EPOCHS_SKIPPED = 1_000_000
"""More than were used since any copy; an epoch has 31 bits, enough for two thousand restored stores."""
PRODUCER_IDS_SKIPPED = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    topics: int
    partitions: int
    commits: int


async def declare_newer(store: Store, random: Random) -> Declared:
    """Raises CoordinationError while a node is registered, and when anything else writes meanwhile."""
    view = await store.view()
    _check_no_node_runs(view)
    for chunk in chunks([BulkOperation(0, each, api_errors.changed_meanwhile()) for each in changed(view)]):
        await _commit(store, [each.operation for each in chunk])
    after = await store.view()
    _check_no_node_runs(after)
    present = after.entries.get(history.KEY)
    known = StoreHistory() if present is None else history.decode(history.KEY, present.value)
    declared = known.with_epoch(f"{random.getrandbits(64):016x}", after.commits)
    declared = declared.with_declaration(f"{random.getrandbits(64):016x}")
    value = history.encode(declared)
    write = Create(history.KEY, value) if present is None else Set(history.KEY, value, present.version)
    await _commit(store, [Check(WHOLE_STORE, after.commits), write])
    topics = topics_of(after)
    partitions = sum(len(topic.partitions) for topic in topics)
    return Declared(topics=len(topics), partitions=partitions, commits=after.commits + 1)


def topics_of(view: View) -> list[Topic]:
    names = ((key, documents.topic_of_key(key)) for key in view.entries)
    return [
        documents.decode_topic(key, view.entries[key].value, name) for key, name in names if name is not None
    ]


def changed(view: View) -> list[Set]:
    """The entries as they have to be before a node reads them."""
    operations = []
    for key, entry in view.entries.items():
        value: bytes | None = None
        if (name := documents.topic_of_key(key)) is not None:
            topic = documents.decode_topic(key, entry.value, name)
            value = documents.encode_topic(
                replace(topic, partitions=tuple(map(_without_leader, topic.partitions)))
            )
        elif key == documents.CONTROLLER_EPOCH:
            epoch = documents.decode(key, entry.value)["epoch"]
            value = documents.encode(epoch=epoch + EPOCHS_SKIPPED)
        elif key == documents.PRODUCER_IDS:
            following = documents.decode(key, entry.value)["next"]
            value = documents.encode(next=following + PRODUCER_IDS_SKIPPED)
        if value is not None:
            operations.append(Set(key, value, entry.version))
    return operations


def _without_leader(state: PartitionState) -> PartitionState:
    return replace(
        state,
        leader=NO_NODE,
        leader_epoch=state.leader_epoch + EPOCHS_SKIPPED,
        partition_epoch=state.partition_epoch + EPOCHS_SKIPPED,
        isr=(),
        elr=(),
        last_known_elr=state.replicas,
    )


def _check_no_node_runs(view: View) -> None:
    owned = (documents.node_of_key(key) for key, entry in view.entries.items() if entry.owner is not None)
    nodes = sorted(node for node in owned if node is not None)
    if nodes:
        raise CoordinationError(
            f"nodes are registered in the coordination store: {', '.join(map(str, nodes))}. Stop them first; "
            "the entries of killed ones go when their sessions end (broker.session.timeout.ms)"
        )


async def _commit(store: Store, operations: Sequence[Operation]) -> None:
    outcome = await commit_resolving_unknown(store, operations)
    if not isinstance(outcome, Applied):
        raise CoordinationError(
            f"{outcome.key} of the coordination store was changed by another process: stop all nodes, "
            "and repeat"
        )
