# SPDX-License-Identifier: Apache-2.0
"""Authorizes requests about transactions: of their producers, of other nodes and of tools.

The topics of AddPartitionsToTxn and TxnOffsetCommit are authorized where they are looked up
(handlers/transactions.py, handlers/group_offsets.py).
Read next: guard.py, member_requests.py.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import repeat
from typing import Any

from headrace.acls import CLUSTER_NAME, Operation, ResourceType
from headrace.broker.authorization.group_requests import may_on_group
from headrace.broker.authorization.guard import (
    CLUSTER_DENIED,
    GROUP_DENIED,
    TRANSACTIONAL_ID_DENIED,
    Guard,
    denied,
    plain_reply,
)
from headrace.broker.authorization.member_requests import MemberGuard, Refusal
from headrace.broker.handlers.group_offsets import txn_commit_topics
from headrace.broker.handlers.transactions import (
    BATCHED_FROM,
    MarkerCodes,
    added_reply,
    additions_in,
    markers_reply,
    topic_results,
)
from headrace.broker.network.request_context import Handler, Reply, RequestContext
from headrace.broker.network.yielding import yielding
from headrace.broker.security.authorization import Caller
from headrace.types import TopicPartition
from headrace.wire.api_authorization import NEEDED
from headrace.wire.api_key import ApiKey
from headrace.wire.messages import encode_reply


def by_key() -> dict[int, Guard]:
    return {
        ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
        ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
        ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
        ApiKey.LIST_TRANSACTIONS: _list_transactions,
    }


def of_producers() -> dict[int, MemberGuard]:
    """Of requests that are handled without a task."""
    return {
        ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
        ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets_to_txn,
        ApiKey.END_TXN: _end_txn,
    }


def _may_on_id(caller: Caller, transactional_id: str) -> bool:
    operation = NEEDED[caller.api_key].transactional_id
    assert operation is not None
    return caller.may(operation, ResourceType.TRANSACTIONAL_ID, transactional_id)


def _may_on_cluster(caller: Caller) -> bool:
    operation = NEEDED[caller.api_key].cluster
    assert operation is not None
    return caller.may_on_cluster(operation)


# Producers


def _add_partitions_to_txn(caller: Caller, context: RequestContext, request: Any) -> Refusal | None:
    """From other nodes, for the transactions of any producer: ClusterAction instead."""
    if context.api_version >= BATCHED_FROM:
        return None if _may_on_cluster(caller) else denied(CLUSTER_DENIED)
    (addition,) = additions_in(context.api_version, request)
    if _may_on_id(caller, addition.transactional_id):
        return None
    partitions = {
        TopicPartition(topic.name, index): TRANSACTIONAL_ID_DENIED
        for topic in addition.topics
        for index in topic.partitions
    }
    results = [(addition.transactional_id, topic_results(partitions.items()))]
    return encode_reply(*context[:3], added_reply(context.api_version, results))


def _add_offsets_to_txn(caller: Caller, context: RequestContext, request: Any) -> Refusal | None:
    if not _may_on_id(caller, request.transactional_id):
        return denied(TRANSACTIONAL_ID_DENIED)
    return None if may_on_group(caller, request.group_id) else denied(GROUP_DENIED)


def _end_txn(caller: Caller, context: RequestContext, request: Any) -> Refusal | None:
    return None if _may_on_id(caller, request.transactional_id) else denied(TRANSACTIONAL_ID_DENIED)


async def _txn_offset_commit(
    caller: Caller, context: RequestContext, request: Any, handler: Handler
) -> Reply:
    if not _may_on_id(caller, request.transactional_id):
        refusal = TRANSACTIONAL_ID_DENIED
    elif not may_on_group(caller, request.group_id):
        refusal = GROUP_DENIED
    else:
        return await handler(context, request)
    count = sum(len(topic.partitions) for topic in request.topics)
    return {"topics": txn_commit_topics(request.topics, repeat(refusal, count))}


# Nodes and tools


async def _write_txn_markers(
    caller: Caller, context: RequestContext, request: Any, handler: Handler
) -> Reply:
    """Alter suffices, too: it lets tools end hanging transactions (KIP-1037)."""
    if caller.access.allows(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME) or _may_on_cluster(caller):
        return await handler(context, request)
    codes: MarkerCodes = {}
    async for marker in yielding(request.markers):
        of_producer = codes.setdefault(marker.producer_id, {})
        async for topic in yielding(marker.topics):
            refused = dict.fromkeys(topic.partition_indexes, CLUSTER_DENIED)
            of_producer.setdefault(topic.name, {}).update(refused)
    return await markers_reply(codes)


async def _describe_transactions(
    caller: Caller, context: RequestContext, request: Any, handler: Handler
) -> Reply:
    """Topics that must not be described are left out."""
    names: tuple[str, ...] = request.transactional_ids
    allowed = tuple(name for name in names if _may_on_id(caller, name))
    reply: dict[str, Any] = {}
    if allowed:
        reply = await plain_reply(handler, context, replace(request, transactional_ids=allowed))
    described = [_without_hidden_topics(caller, entry) for entry in reply.get("transaction_states", ())]
    kept = set(allowed)
    refusal = {"error_code": TRANSACTIONAL_ID_DENIED}
    refused = [{"transactional_id": name, **refusal} for name in names if name not in kept]
    return {**reply, "transaction_states": [*described, *refused]}


def _without_hidden_topics(caller: Caller, entry: dict[str, Any]) -> dict[str, Any]:
    if "topics" not in entry:
        return entry
    may = caller.access.allows
    topics = [each for each in entry["topics"] if may(Operation.DESCRIBE, ResourceType.TOPIC, each["topic"])]
    return {**entry, "topics": topics}


async def _list_transactions(
    caller: Caller, context: RequestContext, request: Any, handler: Handler
) -> Reply:
    """Nothing is refused: transactional ids that must not be described are not listed."""
    reply = await plain_reply(handler, context, request)
    may = caller.access.allows
    return {
        **reply,
        "transaction_states": [
            entry
            for entry in reply["transaction_states"]
            if may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, entry["transactional_id"])
        ],
    }
