# SPDX-License-Identifier: Apache-2.0
"""OffsetCommit 2-10, TxnOffsetCommit 0-5, OffsetFetch 1-10, OffsetDelete 0.

Resolves topic names and ids (ids from version 10 on) and checks that the partitions exist. Who may commit
what is decided in machines/groups/offsets.py. The coordinator that cannot answer OffsetFetch yet replies with
COORDINATOR_LOAD_IN_PROGRESS, the only coordinator error after which librdkafka retries (decision 19).

Before the first offsets of a transaction the transaction's coordinator is asked whether the group's partition
of `__consumer_offsets` is part of it, or from version 5 of TxnOffsetCommit on to add it (KIP-890). A marker
that is written meanwhile drops the partition's guard, and the commit is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

from headrace.acls import Operation
from headrace.broker.groups.coordinator import OFFSETS_TOPIC, GroupCoordinator
from headrace.broker.metrics import Metrics
from headrace.broker.network.deferred_reply import DeferredHandler, DeferredReply
from headrace.broker.network.request_context import Handler, RequestContext
from headrace.broker.network.yielding import yielding
from headrace.broker.partition.partition import NotVerified, Partition, VerificationGuard
from headrace.broker.partition.registry import Partitions
from headrace.broker.security.authorization import Authorization, Caller
from headrace.broker.transactions.enrolment import Enrolment
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError
from headrace.machines.groups.events import (
    NO_GENERATION,
    NO_MEMBER_ID,
    NO_TOKEN,
    FetchedOffset,
    OffsetCommit,
    OffsetCommitReply,
    OffsetDelete,
    OffsetDeleteReply,
    OffsetFetch,
    OffsetFetchReply,
)
from headrace.machines.machine import ReplyBody, ReplyToken
from headrace.machines.transactions.events import Producer
from headrace.machines.transactions.versions import adds_partitions, error_for, error_of_txn_offset_commit
from headrace.types import ClusterView, Topic
from headrace.wire.api_key import ApiKey
from headrace.wire.coordinator.commit_records import CommitPartitions
from headrace.wire.coordinator.group_records import NO_EPOCH
from headrace.wire.error_codes import ErrorCode
from headrace.wire.plain_batch import plain_batch
from headrace.wire.requests.offset_commit import (
    CommitTopic,
    CommitTopics,
    OffsetCommitRequest,
    write_offset_commit_reply,
)

_BY_NAME = 0
_IDS_FROM = 10
_BATCHED_FROM = 8
_TOP_LEVEL_ERROR_FROM = 2
"""First OffsetFetch version whose reply has an error code for the whole request."""
_COORDINATOR_ERRORS = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_not_available})
_NO_OFFSET = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}


class _Resolved(NamedTuple):
    """The topics of a commit as the cluster view has them, and its ACLs allow the sender."""

    view: ClusterView
    partitions: CommitPartitions
    """Those that exist."""
    codes: list[ErrorCode | None] | None
    """Error of each partition; None where the group decides. None in all: every partition exists."""


def _resolve(view: ClusterView, topics: CommitTopics, version: int, caller: Caller | None) -> _Resolved:
    found: list[tuple[str, int, str | None, UUID]] = []
    codes: list[ErrorCode | None] = []
    for named in topics:
        topic = _topic(view, named, version)
        name = topic.name if isinstance(topic, Topic) else named.name
        if caller is not None and name and not caller.may_on_topic(Operation.READ, name):
            topic = ErrorCode.topic_authorization_failed
        if not isinstance(topic, Topic):
            codes += [topic] * len(named.partitions)
            continue
        topic_id, count = topic.topic_id, len(topic.partitions)
        for partition, metadata in named.partitions:
            if 0 <= partition < count:
                codes.append(None)
                found.append((name, partition, metadata, topic_id))
            else:
                codes.append(ErrorCode.unknown_topic_or_partition)
    return _Resolved(view, CommitPartitions(found), None if len(found) == len(codes) else codes)


def _undecided(numbers: tuple[int, ...], codes: Iterable[ErrorCode | None]) -> tuple[int, ...]:
    """Of the partitions that exist."""
    return tuple(number for number, code in zip(numbers, codes, strict=True) if code is None)


def _commit_errors(body: ReplyBody | ApiError, count: int) -> Iterable[ErrorCode]:
    """Of each of the `count` partitions that the group decided about."""
    if isinstance(body, ApiError):
        return [body.code] * count
    if not isinstance(body, OffsetCommitReply):
        raise TypeError(f"{body!r} is no OffsetCommitReply")
    return body.errors if body.error is ErrorCode.none else [body.error] * count


class GroupOffsetHandlers:
    """Handlers of OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete."""

    def __init__(
        self,
        *,
        cluster: ClusterMetadata,
        groups: GroupCoordinator,
        partitions: Partitions,
        enrolment: Enrolment,
        metrics: Metrics,
        verifies_transactions: Callable[[], bool],
        authorization: Authorization | None = None,
    ) -> None:
        """`authorization`: of the topics in OffsetCommit and TxnOffsetCommit. `verifies_transactions`:
        transaction.partition.verification.enable, for clients before KIP-890."""
        self._cluster = cluster
        self._groups = groups
        self._partitions = partitions
        self._enrolment = enrolment
        self._verifies_transactions = verifies_transactions
        self._metrics = metrics
        self._authorization = authorization

    def by_key(self) -> dict[int, Handler]:
        return {
            ApiKey.TXN_OFFSET_COMMIT: self.txn_offset_commit,
            ApiKey.OFFSET_FETCH: self.offset_fetch,
            ApiKey.OFFSET_DELETE: self.offset_delete,
        }

    def deferred_by_key(self) -> dict[int, DeferredHandler]:
        return {ApiKey.OFFSET_COMMIT: self.offset_commit}

    # OffsetCommit

    def offset_commit(
        self, context: RequestContext, request: OffsetCommitRequest, reply: DeferredReply
    ) -> None:
        version, view, topics = context.api_version, self._cluster.view, request.topics
        resolved = topics.resolved
        if resolved is None or resolved.view is not view:
            caller = None if self._authorization is None else self._authorization.caller(context)
            resolved = topics.resolved = _resolve(view, topics, version, caller)
        _, partitions, codes = resolved
        offsets, leader_epochs = request.offsets, request.leader_epochs
        if codes is not None:
            offsets, leader_epochs = _undecided(offsets, codes), _undecided(leader_epochs, codes)
        event = OffsetCommit(
            token=NO_TOKEN,
            version=version,
            partitions=partitions,
            offsets=offsets,
            leader_epochs=leader_epochs,
            member_id=request.member_id,
            group_instance_id=request.instance_id,
            generation=request.generation,
            retention_ms=request.retention_ms,
        )

        def finish(body: ReplyBody | ApiError) -> bytes:
            if codes is None and isinstance(body, OffsetCommitReply) and body.errors is partitions.no_errors:
                return topics.accepted_reply(version, context.correlation_id)
            decided = iter(_commit_errors(body, len(partitions)))
            results = [next(decided) if code is None else code for code in codes or [None] * len(partitions)]
            for code in filter(None, results):
                self._metrics.request_error(context.api_key, code, context.activity)
            return write_offset_commit_reply(version, context.correlation_id, topics, results)

        if len(partitions):
            self._groups.submit(request.group_id, event.numbered, reply.answer_with(finish))
        else:
            reply.send(finish(OffsetCommitReply()))

    # TxnOffsetCommit

    async def txn_offset_commit(self, context: RequestContext, request: Any) -> dict[str, Any]:
        version = context.api_version
        topics = CommitTopics(
            CommitTopic(
                name=topic.name,
                topic_id=None,
                partitions=[(each.partition_index, each.committed_metadata) for each in topic.partitions],
            )
            for topic in request.topics
        )
        caller = None if self._authorization is None else self._authorization.caller(context)
        _, partitions, codes = _resolve(self._cluster.view, topics, _BY_NAME, caller)
        decided: Iterable[ErrorCode] = ()
        if len(partitions):
            decided = await self._commit_in_transaction(version, request, partitions, codes)
        answers = iter(decided)
        results = [next(answers) if code is None else code for code in codes or [None] * len(partitions)]
        told = [error_for(ApiKey.TXN_OFFSET_COMMIT, version, code) for code in results]
        for code in filter(None, told):
            self._metrics.request_error(context.api_key, code, context.activity)
        return {"topics": txn_commit_topics(request.topics, iter(told))}

    async def _commit_in_transaction(
        self,
        version: int,
        request: Any,
        partitions: CommitPartitions,
        codes: list[ErrorCode | None] | None,
    ) -> Iterable[ErrorCode]:
        """The error of each partition that exists."""
        try:
            if not request.group_id:
                raise ApiError(ErrorCode.invalid_group_id)
            if request.producer_id < 0:
                raise ApiError(ErrorCode.invalid_producer_id_mapping)
            partition = self._partition_of(request.group_id)
            guard = await self._verify(version, request, partition)
            body = await self._submit(version, request, partitions, codes, partition, guard)
            if isinstance(body, NotVerified) and adds_partitions(ApiKey.TXN_OFFSET_COMMIT, version):
                # The marker of the producer's last transaction dropped the guard.
                guard = await self._verify(version, request, partition)
                body = await self._submit(version, request, partitions, codes, partition, guard)
        except ApiError as refusal:
            body = refusal
        return _commit_errors(body, len(partitions))

    def _partition_of(self, group_id: str) -> Partition:
        partition = self._partitions.get(OFFSETS_TOPIC, self._groups.partition_of(group_id))
        if partition is None or not partition.leads:
            raise ApiError(ErrorCode.not_coordinator)
        return partition

    async def _verify(self, version: int, request: Any, partition: Partition) -> VerificationGuard | None:
        """Raises ApiError when the group's partition is not in the transaction. None: it was written to by it
        already, or is not verified."""
        adds = adds_partitions(ApiKey.TXN_OFFSET_COMMIT, version)
        if not (adds or self._verifies_transactions()):
            return None
        guard = partition.begin_verification(memoryview(_empty_batch(request)), 0, begins_at_zero=adds)
        if guard is None:
            return None
        producer, name = Producer(request.producer_id, request.producer_epoch), partition.topic_partition
        errors = await self._enrolment.ask(
            request.transactional_id, producer, frozenset((name,)), verify_only=not adds
        )
        error = errors[name]
        if error is not ErrorCode.none:
            raise ApiError(error_of_txn_offset_commit(version, error))
        return guard

    async def _submit(
        self,
        version: int,
        request: Any,
        partitions: CommitPartitions,
        codes: list[ErrorCode | None] | None,
        partition: Partition,
        guard: VerificationGuard | None,
    ) -> ReplyBody | ApiError:
        positions = [each for topic in request.topics for each in topic.partitions]
        offsets = tuple(each.committed_offset for each in positions)
        leader_epochs = tuple(getattr(each, "committed_leader_epoch", NO_EPOCH) for each in positions)
        if codes is not None:
            offsets, leader_epochs = _undecided(offsets, codes), _undecided(leader_epochs, codes)
        batch = _empty_batch(request)

        def event(token: ReplyToken) -> OffsetCommit:
            return OffsetCommit(
                token=token,
                version=version,
                partitions=partitions,
                offsets=offsets,
                leader_epochs=leader_epochs,
                member_id=getattr(request, "member_id", NO_MEMBER_ID),
                group_instance_id=getattr(request, "group_instance_id", None),
                generation=getattr(request, "generation_id", NO_GENERATION),
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
            )

        answered: asyncio.Future[ReplyBody | ApiError] = asyncio.get_running_loop().create_future()

        def answer(body: ReplyBody | ApiError) -> None:
            if not answered.done():
                answered.set_result(body)

        self._groups.submit(request.group_id, event, answer, check=lambda: partition.check_own(batch, guard))
        return await answered

    # OffsetFetch

    async def offset_fetch(self, context: RequestContext, request: Any) -> dict[str, Any]:
        version = context.api_version
        require_stable = getattr(request, "require_stable", False)
        if version >= _BATCHED_FROM:
            return {
                "groups": [
                    {"group_id": group.group_id, **await self._fetch_group(context, group, require_stable)}
                    async for group in yielding(await _groups_once(request.groups))
                ]
            }
        result = await self._fetch_group(context, request, require_stable)
        code = result["error_code"]
        if code is not ErrorCode.none and version < _TOP_LEVEL_ERROR_FROM:
            return {"topics": [_topic_error(topic, version, code) for topic in request.topics]}
        return result

    async def _fetch_group(self, context: RequestContext, group: Any, require_stable: bool) -> dict[str, Any]:
        version, view = context.api_version, self._cluster.view
        is_ours = self._groups.is_coordinator_of(group.group_id)
        names = None if group.topics is None else [_name(view, topic, version) for topic in group.topics]

        def event(token: ReplyToken) -> OffsetFetch:
            return OffsetFetch(
                token=token,
                version=version,
                partitions=None if names is None else _requested_partitions(names, group.topics),
                member_id=getattr(group, "member_id", None),
                member_epoch=getattr(group, "member_epoch", -1),
                require_stable=require_stable,
            )

        try:
            body = await self._groups.ask(group.group_id, event)
            if not isinstance(body, OffsetFetchReply):
                raise TypeError(f"expected OffsetFetchReply, not {body!r}")
            if body.error is not ErrorCode.none:
                raise ApiError(body.error)
        except ApiError as refusal:
            retriable = is_ours and refusal.code in _COORDINATOR_ERRORS  # then clients retry
            code = ErrorCode.coordinator_load_in_progress if retriable else refusal.code
            self._metrics.request_error(context.api_key, code, context.activity)
            return {"error_code": code, "topics": []}
        if names is None:
            topics = _all_topics(view, body.offsets, version)
        else:
            topics = _requested_topics(names, group.topics, iter(body.offsets), version)
        return {"error_code": ErrorCode.none, "topics": topics}

    # OffsetDelete

    async def offset_delete(self, context: RequestContext, request: Any) -> dict[str, Any]:
        view = self._cluster.view
        wanted: list[tuple[str, int]] = []
        places: list[dict[str, Any]] = []
        topics = []
        for named in request.topics:
            topic = view.topics.get(named.name)
            partitions = [{"partition_index": each.partition_index} for each in named.partitions]
            topics.append({"name": named.name, "partitions": partitions})
            for place in partitions:
                index = place["partition_index"]
                if topic is None or not 0 <= index < len(topic.partitions):
                    place["error_code"] = ErrorCode.unknown_topic_or_partition
                else:
                    wanted.append((named.name, index))
                    places.append(place)
        if not wanted and topics:
            return {"topics": topics}
        body = await self._groups.ask(
            request.group_id,
            lambda token: OffsetDelete(token=token, version=context.api_version, partitions=tuple(wanted)),
        )
        if not isinstance(body, OffsetDeleteReply):
            raise TypeError(f"expected OffsetDeleteReply, not {body!r}")
        if body.error is not ErrorCode.none:
            raise ApiError(body.error)
        for place, code in zip(places, body.errors, strict=True):
            place["error_code"] = code
        return {"topics": topics}


def _empty_batch(request: Any) -> bytearray:
    """What the producer state of a log is asked with: only its producer matters."""
    return plain_batch((), 0, 0, producer_id=request.producer_id, producer_epoch=request.producer_epoch)


def txn_commit_topics(topics: Iterable[Any], codes: Iterator[ErrorCode]) -> list[dict[str, Any]]:
    """Of the reply; `codes` of all partitions in turn."""
    return [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": each.partition_index, "error_code": next(codes)}
                for each in topic.partitions
            ],
        }
        for topic in topics
    ]


async def _groups_once(groups: Iterable[Any]) -> list[Any]:
    """Without those that ask for the same again: for all offsets of one group, a thousand times."""
    found = {(group.group_id, group.topics): group async for group in yielding(groups)}
    return list(found.values())


def _topic(view: ClusterView, named: Any, version: int) -> Topic | ErrorCode:
    """The topic, or the error when it does not exist."""
    if version >= _IDS_FROM:
        topic = None if named.topic_id is None else view.topic_by_id(named.topic_id)
        return topic or ErrorCode.unknown_topic_id
    return view.topics.get(named.name) or ErrorCode.unknown_topic_or_partition


def _label(named: Any, version: int) -> dict[str, Any]:
    return {"topic_id": named.topic_id} if version >= _IDS_FROM else {"name": named.name}


def _name(view: ClusterView, named: Any, version: int) -> str | None:
    """None: no topic has that id. A name need not exist: offsets may outlive their topic."""
    if version < _IDS_FROM:
        return str(named.name)
    return None if named.topic_id is None else view.topic_names.get(named.topic_id)


def _requested_partitions(names: list[str | None], topics: Any) -> tuple[tuple[str, int], ...]:
    return tuple(
        (name, index)
        for name, topic in zip(names, topics, strict=True)
        if name is not None
        for index in topic.partition_indexes
    )


def _requested_topics(
    names: list[str | None], topics: Any, found: Iterator[FetchedOffset], version: int
) -> list[dict[str, Any]]:
    """In the order of the request, which is also that of the offsets found."""
    return [
        _topic_error(topic, version, ErrorCode.unknown_topic_id)
        if name is None
        else {
            **_label(topic, version),
            "partitions": [_fetched(next(found)) for _ in topic.partition_indexes],
        }
        for name, topic in zip(names, topics, strict=True)
    ]


def _all_topics(view: ClusterView, found: Iterable[FetchedOffset], version: int) -> list[dict[str, Any]]:
    """All offsets of the group by topic; by id, deleted topics are omitted."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for each in found:
        by_name.setdefault(each.topic, []).append(_fetched(each))
    if version < _IDS_FROM:
        return [{"name": name, "partitions": partitions} for name, partitions in by_name.items()]
    return [
        {"topic_id": view.topics[name].topic_id, "partitions": partitions}
        for name, partitions in by_name.items()
        if name in view.topics
    ]


def _fetched(found: FetchedOffset) -> dict[str, Any]:
    committed = found.committed
    if committed is None:
        return {"partition_index": found.partition, **_NO_OFFSET, "error_code": found.error}
    return {
        "partition_index": found.partition,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "error_code": found.error,
    }


def _topic_error(topic: Any, version: int, code: ErrorCode) -> dict[str, Any]:
    return {
        **_label(topic, version),
        "partitions": [
            {"partition_index": index, **_NO_OFFSET, "error_code": code} for index in topic.partition_indexes
        ],
    }
