# SPDX-License-Identifier: Apache-2.0
"""What a transactional id asks its coordinators, in which order and version, and what it makes of a no."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace.client.arrow.write import transaction_session
from headrace.client.arrow.write.transaction_session import (
    OutcomeUnknown,
    TransactionFenced,
    TransactionSession,
)
from headrace.client.coordinator import RetriesExhausted
from headrace.client.errors import ClientError
from headrace.client.membership.group_metadata import GroupMetadata
from headrace.wire.error_codes import ErrorCode
from tests.harness.client.fake_coordinator import (
    COMMIT,
    END,
    FIND,
    INIT,
    OFFSETS,
    PARTITIONS,
    FakeNetworkClient,
)

GROUP = GroupMetadata(group="g", generation=4, member_id="m", instance_id=None)
CONCURRENT = ErrorCode.concurrent_transactions


def run(
    version: int,
    scenario: Callable[[FakeNetworkClient, TransactionSession], Any],
    *refused: tuple[int, ErrorCode | None],
    timeout_ms: int = 5000,
) -> FakeNetworkClient:
    client = FakeNetworkClient(version)
    for api_key, code in refused:
        client.refuse(api_key, code)

    async def main() -> None:
        session = TransactionSession(
            client,  # type: ignore[arg-type]
            "tx",
            transaction_timeout_ms=1234,
            timeout_ms=timeout_ms,
        )
        await session.open()
        client.asked.clear()
        await scenario(client, session)

    asyncio.run(main())
    return client


async def one_transaction(client: FakeNetworkClient, session: TransactionSession) -> None:
    await asyncio.gather(*(session.add_partition("t", partition) for partition in (2, 0, 1)))
    await session.add_partition("t", 1)
    await session.send_offsets({("in", 0): 7, ("in", 3): 9}, GROUP)
    await session.end(committed=True)


def test_up_to_version_1_the_client_names_partitions_and_groups_first() -> None:
    client = run(1, one_transaction)
    assert client.order == ["partitions", "offsets", "find", "commit", "end"]
    versions = {name: version for name, version, _ in client.asked}
    assert (versions["partitions"], versions["commit"], versions["end"]) == (3, 4, 4)
    (topics,) = (fields["v3_and_below_topics"] for name, _, fields in client.asked if name == "partitions")
    assert topics == [{"name": "t", "partitions": [0, 1, 2]}], "three at the same time go in one request"


def test_from_version_2_brokers_do_that() -> None:
    client = run(2, one_transaction)
    assert client.order == ["find", "commit", "end"]
    assert [version for name, version, _ in client.asked if name != "find"] == [5, 5]


def test_offsets_carry_who_the_member_is() -> None:
    client = run(2, one_transaction)
    fields = next(fields for name, _, fields in client.asked if name == "commit")
    assert (fields["group_id"], fields["generation_id"], fields["member_id"]) == ("g", 4, "m")
    assert (fields["transactional_id"], fields["producer_id"], fields["producer_epoch"]) == ("tx", 40, 0)
    assert [entry["committed_offset"] for entry in fields["topics"][0]["partitions"]] == [7, 9]


@pytest.mark.parametrize(("version", "newest"), [(0, 11), (1, 11), (2, 13)])
def test_the_produce_version_decides_who_adds_partitions(version: int, newest: int) -> None:
    async def scenario(client: FakeNetworkClient, session: TransactionSession) -> None:
        assert session.newest_produce == newest

    run(version, scenario)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_nothing_written_means_nothing_to_end(version: int, committed: bool) -> None:
    async def scenario(client: FakeNetworkClient, session: TransactionSession) -> None:
        await session.send_offsets({}, GROUP)
        await session.end(committed=committed)

    assert run(version, scenario).asked == []


def test_every_end_of_version_2_counts_from_0_again() -> None:
    async def scenario(client: FakeNetworkClient, session: TransactionSession) -> None:
        for epoch in (0, 1, 2):
            assert session.producer.epoch == epoch
            assert session.sequences("t") == {}
            session.sequences("t")[0] = 5
            await session.add_partition("t", 0)
            await session.end(committed=epoch % 2 == 0)

    run(2, scenario)


def test_version_1_keeps_its_producer_epoch_unless_the_outcome_of_a_batch_is_unknown() -> None:
    async def scenario(client: FakeNetworkClient, session: TransactionSession) -> None:
        session.sequences("t")[0] = 5
        await session.add_partition("t", 0)
        await session.end(committed=True)
        assert (session.producer.epoch, session.sequences("t")) == (0, {0: 5})
        await session.add_partition("t", 0)
        session.outcome_unknown = True
        await session.end(committed=False)
        assert (session.producer.epoch, session.sequences("t")) == (1, {})
        assert not session.outcome_unknown

    client = run(1, scenario)
    assert client.order == ["partitions", "end", "partitions", "end", "init"]
    assert (client.asked[-1][2]["producer_id"], client.asked[-1][2]["producer_epoch"]) == (40, 0)


@pytest.mark.parametrize("api_key", [INIT, PARTITIONS, OFFSETS, COMMIT, END])
@pytest.mark.parametrize(
    "code", [CONCURRENT, ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress, None]
)
def test_retriable_errors_are_retried(api_key: int, code: ErrorCode | None) -> None:
    client = run(1, one_transaction, (api_key, code))
    expected = {PARTITIONS: 1, OFFSETS: 1, COMMIT: 1, END: 1}
    expected |= {api_key: 2} if api_key != INIT else {}
    names = {PARTITIONS: "partitions", OFFSETS: "offsets", COMMIT: "commit", END: "end"}
    for key, count in expected.items():
        assert client.order.count(names[key]) == count
    if code is not CONCURRENT and api_key != INIT:
        assert client.order.count("find") == 2, "it is looked for anew"


@pytest.mark.parametrize("api_key", [INIT, PARTITIONS, OFFSETS, COMMIT, END])
@pytest.mark.parametrize("code", [ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch])
def test_a_fenced_writer_gets_transaction_fenced(api_key: int, code: ErrorCode) -> None:
    with pytest.raises(TransactionFenced, match=r"'tx' was taken over by another writer, or .* 1234 ms"):
        run(1, one_transaction, (api_key, code))


def test_a_removed_group_member_gets_an_error() -> None:
    with pytest.raises(ClientError, match="group 'g': illegal_generation; the group removed this member"):
        run(2, one_transaction, (COMMIT, ErrorCode.illegal_generation))


def test_a_commit_without_an_answer_is_unknown_and_an_abort_is_not() -> None:
    lost = [(END, None)] * 50
    with pytest.raises(OutcomeUnknown, match="whether 'tx' committed its transaction is not known"):
        run(2, one_transaction, *lost, timeout_ms=30)

    async def abort(client: FakeNetworkClient, session: TransactionSession) -> None:
        await session.add_partition("t", 0)
        await session.end(committed=False)

    with pytest.raises(RetriesExhausted, match="no attempt succeeded for 30 ms: the reply was lost"):
        run(2, abort, *lost, timeout_ms=30)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "refusal",
    [
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.invalid_txn_state,
        ErrorCode.transactional_id_authorization_failed,
    ],
)
@pytest.mark.parametrize("first", [None, ErrorCode.coordinator_not_available, ErrorCode.not_coordinator])
def test_a_commit_that_is_refused_after_one_without_an_outcome_is_unknown(
    version: int, refusal: ErrorCode, first: ErrorCode | None
) -> None:
    """The first may have been carried out; a newer producer fenced this one afterwards."""
    with pytest.raises(OutcomeUnknown, match="whether 'tx' committed its transaction is not known") as raised:
        run(version, one_transaction, (END, first), (END, refusal))
    assert raised.value.code == refusal.name.upper()


def test_a_commit_that_the_broker_fails_to_carry_out_is_unknown() -> None:
    with pytest.raises(OutcomeUnknown):
        run(2, one_transaction, (END, ErrorCode.unknown_server_error))


@pytest.mark.parametrize("first", [CONCURRENT, ErrorCode.coordinator_load_in_progress])
def test_a_commit_that_is_fenced_after_refusals_alone_committed_nothing(first: ErrorCode) -> None:
    """These answers come before the coordinator changes anything."""
    with pytest.raises(TransactionFenced, match="nothing of it was committed"):
        run(2, one_transaction, (END, first), (END, ErrorCode.producer_fenced))


def test_an_abort_that_is_fenced_after_a_lost_reply_committed_nothing() -> None:
    async def abort(client: FakeNetworkClient, session: TransactionSession) -> None:
        await session.add_partition("t", 0)
        await session.end(committed=False)

    with pytest.raises(TransactionFenced, match="nothing of it was committed"):
        run(2, abort, (END, None), (END, ErrorCode.producer_fenced))


def test_a_broker_without_transactions_is_named() -> None:
    client = FakeNetworkClient(0)
    del client.versions[END]

    async def main() -> None:
        session = TransactionSession(client, "tx", transaction_timeout_ms=1, timeout_ms=1)  # type: ignore[arg-type]
        await session.open()

    with pytest.raises(ClientError, match="the broker at fake:9092 serves no transactions; write without"):
        asyncio.run(main())


def test_an_id_that_may_not_be_used_is_named_at_once() -> None:
    with pytest.raises(ClientError, match=r"transactional id 'tx': transactional_id_auth.*; ask for WRITE"):
        run(2, one_transaction, (FIND, ErrorCode.transactional_id_authorization_failed))


def test_an_unanswered_abort_is_abandoned_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_session, "_ABANDON_MS", 40)

    async def scenario(client: FakeNetworkClient, session: TransactionSession) -> None:
        await session.add_partition("t", 0)
        client.refuse(END, *[None] * 1000)
        started = asyncio.get_running_loop().time()
        await session.abandon()
        assert asyncio.get_running_loop().time() - started < 2
        assert "end" in client.order

    run(2, scenario, timeout_ms=60_000)
