"""What a transactional id asks its coordinators, in which order and version, and what it makes of a no."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fake_coordinator import COMMIT, END, FIND, INIT, OFFSETS, PARTITIONS, FakeCluster

from headrace.client.arrow import transaction_session
from headrace.client.arrow.coordinator import GaveUp
from headrace.client.arrow.group_metadata import GroupMetadata
from headrace.client.arrow.transaction_session import OutcomeUnknown, TransactionFenced, TransactionSession
from headrace.client.errors import ClientError
from headrace.wire.error_codes import ErrorCode

GROUP = GroupMetadata(group="g", generation=4, member_id="m", instance_id=None)
CONCURRENT = ErrorCode.concurrent_transactions


def run(
    version: int,
    scenario: Callable[[FakeCluster, TransactionSession], Any],
    *refused: tuple[int, ErrorCode | None],
    timeout_ms: int = 5000,
) -> FakeCluster:
    cluster = FakeCluster(version)
    for api_key, code in refused:
        cluster.refuse(api_key, code)

    async def main() -> None:
        session = TransactionSession(
            cluster,  # type: ignore[arg-type]
            "tx",
            transaction_timeout_ms=1234,
            timeout_ms=timeout_ms,
        )
        await session.open()
        cluster.asked.clear()
        await scenario(cluster, session)

    asyncio.run(main())
    return cluster


async def one_transaction(cluster: FakeCluster, session: TransactionSession) -> None:
    await asyncio.gather(*(session.enrol("t", partition) for partition in (2, 0, 1)))
    await session.enrol("t", 1)
    await session.send_offsets({("in", 0): 7, ("in", 3): 9}, GROUP)
    await session.end(committed=True)


def test_up_to_version_1_the_client_names_partitions_and_groups_first() -> None:
    cluster = run(1, one_transaction)
    assert cluster.order == ["partitions", "offsets", "find", "commit", "end"]
    versions = {name: version for name, version, _ in cluster.asked}
    assert (versions["partitions"], versions["commit"], versions["end"]) == (3, 4, 4)
    (topics,) = (fields["v3_and_below_topics"] for name, _, fields in cluster.asked if name == "partitions")
    assert topics == [{"name": "t", "partitions": [0, 1, 2]}], "three at the same time go in one request"


def test_from_version_2_brokers_do_that() -> None:
    cluster = run(2, one_transaction)
    assert cluster.order == ["find", "commit", "end"]
    assert [version for name, version, _ in cluster.asked if name != "find"] == [5, 5]


def test_offsets_carry_who_the_member_is() -> None:
    cluster = run(2, one_transaction)
    fields = next(fields for name, _, fields in cluster.asked if name == "commit")
    assert (fields["group_id"], fields["generation_id"], fields["member_id"]) == ("g", 4, "m")
    assert (fields["transactional_id"], fields["producer_id"], fields["producer_epoch"]) == ("tx", 40, 0)
    assert [entry["committed_offset"] for entry in fields["topics"][0]["partitions"]] == [7, 9]


@pytest.mark.parametrize(("version", "newest"), [(0, 11), (1, 11), (2, 13)])
def test_the_version_of_produce_says_who_enrols(version: int, newest: int) -> None:
    async def scenario(cluster: FakeCluster, session: TransactionSession) -> None:
        assert session.newest_produce == newest

    run(version, scenario)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_nothing_written_means_nothing_to_end(version: int, committed: bool) -> None:
    async def scenario(cluster: FakeCluster, session: TransactionSession) -> None:
        await session.send_offsets({}, GROUP)
        await session.end(committed=committed)

    assert run(version, scenario).asked == []


def test_every_end_of_version_2_counts_from_0_again() -> None:
    async def scenario(cluster: FakeCluster, session: TransactionSession) -> None:
        for epoch in (0, 1, 2):
            assert session.producer.epoch == epoch
            assert session.sequences("t") == {}
            session.sequences("t")[0] = 5
            await session.enrol("t", 0)
            await session.end(committed=epoch % 2 == 0)

    run(2, scenario)


def test_sequences_of_version_1_go_on_unless_a_batch_is_in_doubt() -> None:
    async def scenario(cluster: FakeCluster, session: TransactionSession) -> None:
        session.sequences("t")[0] = 5
        await session.enrol("t", 0)
        await session.end(committed=True)
        assert (session.producer.epoch, session.sequences("t")) == (0, {0: 5})
        await session.enrol("t", 0)
        session.in_doubt = True
        await session.end(committed=False)
        assert (session.producer.epoch, session.sequences("t")) == (1, {})
        assert not session.in_doubt

    cluster = run(1, scenario)
    assert cluster.order == ["partitions", "end", "partitions", "end", "init"]
    assert (cluster.asked[-1][2]["producer_id"], cluster.asked[-1][2]["producer_epoch"]) == (40, 0)


@pytest.mark.parametrize("api_key", [INIT, PARTITIONS, OFFSETS, COMMIT, END])
@pytest.mark.parametrize(
    "code", [CONCURRENT, ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress, None]
)
def test_what_passes_is_tried_again(api_key: int, code: ErrorCode | None) -> None:
    cluster = run(1, one_transaction, (api_key, code))
    expected = {PARTITIONS: 1, OFFSETS: 1, COMMIT: 1, END: 1}
    expected |= {api_key: 2} if api_key != INIT else {}
    names = {PARTITIONS: "partitions", OFFSETS: "offsets", COMMIT: "commit", END: "end"}
    for key, count in expected.items():
        assert cluster.order.count(names[key]) == count
    if code is not CONCURRENT and api_key != INIT:
        assert cluster.order.count("find") == 2, "it is looked for anew"


@pytest.mark.parametrize("api_key", [INIT, PARTITIONS, OFFSETS, COMMIT, END])
@pytest.mark.parametrize("code", [ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch])
def test_a_fenced_writer_is_told_so(api_key: int, code: ErrorCode) -> None:
    with pytest.raises(TransactionFenced, match=r"'tx' was taken over by another writer, or .* 1234 ms"):
        run(1, one_transaction, (api_key, code))


def test_a_member_that_the_group_put_out_is_told_so() -> None:
    with pytest.raises(ClientError, match="group 'g': illegal_generation; the group moved on without this"):
        run(2, one_transaction, (COMMIT, ErrorCode.illegal_generation))


def test_a_commit_without_an_answer_is_unknown_and_an_abort_is_not() -> None:
    lost = [(END, None)] * 50
    with pytest.raises(OutcomeUnknown, match="whether 'tx' committed its transaction is not known"):
        run(2, one_transaction, *lost, timeout_ms=30)

    async def abort(cluster: FakeCluster, session: TransactionSession) -> None:
        await session.enrol("t", 0)
        await session.end(committed=False)

    with pytest.raises(GaveUp, match="nothing worked for 30 ms: the reply was lost"):
        run(2, abort, *lost, timeout_ms=30)


def test_a_broker_without_transactions_is_named() -> None:
    cluster = FakeCluster(0)
    del cluster.versions[END]

    async def main() -> None:
        session = TransactionSession(cluster, "tx", transaction_timeout_ms=1, timeout_ms=1)  # type: ignore[arg-type]
        await session.open()

    with pytest.raises(ClientError, match="the broker at fake:9092 serves no transactions; write without"):
        asyncio.run(main())


def test_an_id_that_may_not_be_used_is_named_at_once() -> None:
    with pytest.raises(ClientError, match=r"transactional id 'tx': transactional_id_auth.*; ask for WRITE"):
        run(2, one_transaction, (FIND, ErrorCode.transactional_id_authorization_failed))


def test_what_nobody_listens_to_is_abandoned_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_session, "_ABANDON_MS", 40)

    async def scenario(cluster: FakeCluster, session: TransactionSession) -> None:
        await session.enrol("t", 0)
        cluster.refuse(END, *[None] * 1000)
        started = asyncio.get_running_loop().time()
        await session.abandon()
        assert asyncio.get_running_loop().time() - started < 2
        assert "end" in cluster.order

    run(2, scenario, timeout_ms=60_000)
