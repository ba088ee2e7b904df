# SPDX-License-Identifier: Apache-2.0
"""The states of a Transaction over a session that does as it is told: what may follow what."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace.client.arrow.write import transaction as module
from headrace.client.arrow.write.transaction import AsyncTransaction, Transaction
from headrace.client.arrow.write.transaction_session import OutcomeUnknown, TransactionFenced
from headrace.client.errors import ClientError
from headrace.client.membership.group_metadata import GroupMetadata

NAME = "states"


class Interrupted(BaseException):
    """As Ctrl-C is, without ending the I/O thread."""


class Session:
    """Notes what it is asked; `fail` is raised by the next call."""

    def __init__(self, cluster: Any, transactional_id: str, **_: Any) -> None:
        self.calls: list[Any] = []
        self.fail: BaseException | None = None
        self.outcome_unknown = False
        assert transactional_id == NAME

    async def open(self) -> None:
        self.calls.append("open")

    async def send_offsets(self, offsets: Any, group: GroupMetadata) -> None:
        self._note(group)

    async def end(self, *, committed: bool) -> None:
        self._note("commit" if committed else "abort")

    async def abandon(self) -> None:
        self._note("abandon")

    def explained(self, error: ClientError) -> ClientError:
        return error

    def _note(self, call: Any) -> None:
        self.calls.append(call)
        if self.fail is not None:
            failure, self.fail = self.fail, None
            raise failure


@pytest.fixture
def transaction(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(module, "TransactionSession", Session)
    made = Transaction(NAME)
    yield made
    made.close()


def session(transaction: Transaction) -> Session:
    found: Any = transaction._session
    return found


def fail(transaction: Transaction, call: Callable[[], Any], error: BaseException) -> None:
    session(transaction).fail = error
    with pytest.raises(type(error)):
        call()


def send(transaction: Transaction) -> None:
    transaction.send_offsets({("t", 0): 1}, "g")


def test_one_after_the_other(transaction: Transaction) -> None:
    for end in (transaction.commit, transaction.abort, transaction.commit):
        transaction.begin()
        send(transaction)
        end()
    group = GroupMetadata(group="g", generation=-1, member_id="")
    assert session(transaction).calls == ["open", group, "commit", group, "abort", group, "commit"]


def test_a_block_commits(transaction: Transaction) -> None:
    with transaction:
        pass
    assert session(transaction).calls == ["open", "commit"]


def test_a_block_that_raises_abandons(transaction: Transaction) -> None:
    def work() -> None:
        with transaction:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert session(transaction).calls == ["open", "abandon"]


def test_a_block_that_ended_it_by_itself_does_nothing_more(transaction: Transaction) -> None:
    with transaction:
        transaction.abort()
    assert session(transaction).calls == ["open", "abort"]


def test_a_block_that_swallowed_a_failure_does_not_commit(transaction: Transaction) -> None:
    def work() -> None:
        with transaction:
            fail(transaction, lambda: send(transaction), ClientError("no room"))

    with pytest.raises(ClientError, match=r"cannot commit: the open transaction failed .*\(no room\)"):
        work()
    assert session(transaction).calls[-1] == "abandon"


@pytest.mark.parametrize("error", [ClientError("no"), RuntimeError("a fault of ours"), Interrupted()])
def test_a_failed_transaction_can_only_be_aborted(transaction: Transaction, error: BaseException) -> None:
    transaction.begin()
    fail(transaction, lambda: send(transaction), error)
    assert session(transaction).outcome_unknown
    for call in (transaction.commit, transaction.begin, lambda: send(transaction)):
        with pytest.raises(ClientError, match=r"the open transaction failed .*; call abort\(\)"):
            call()
    transaction.abort()
    transaction.begin()
    transaction.commit()


def test_an_abort_that_failed_may_be_tried_again(transaction: Transaction) -> None:
    transaction.begin()
    fail(transaction, transaction.abort, ClientError("not now"))
    transaction.abort()
    transaction.begin()


@pytest.mark.parametrize("error", [TransactionFenced("other"), OutcomeUnknown("lost"), Interrupted()])
def test_after_an_end_that_went_wrong_it_is_over(transaction: Transaction, error: BaseException) -> None:
    transaction.begin()
    fail(transaction, transaction.commit, error)
    for call in (transaction.begin, transaction.abort, transaction.commit):
        with pytest.raises(ClientError, match=r"cannot be used any more here .*; open it again"):
            call()


def test_a_fenced_writer_is_over_at_once(transaction: Transaction) -> None:
    transaction.begin()
    fail(transaction, lambda: send(transaction), TransactionFenced("another has it"))
    with pytest.raises(ClientError, match=r"cannot abort: .*\(another has it\); open it again"):
        transaction.abort()


def threads() -> int:
    return sum(thread.name == f"headrace-transaction-{NAME}" for thread in threading.enumerate())


def test_a_dropped_one_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TransactionSession", Session)
    dropped = Transaction(NAME)
    assert threads() == 1
    del dropped
    gc.collect()
    assert threads() == 0


def test_closing_twice_is_nothing(transaction: Transaction) -> None:
    transaction.begin()
    transaction.close()
    transaction.close()
    assert session(transaction).calls == ["open", "abandon"]
    assert threads() == 0


# -- for asyncio ---------------------------------------------------------------------------------------------


Scenario = Callable[[AsyncTransaction], Awaitable[None]]


def run(monkeypatch: pytest.MonkeyPatch, scenario: Scenario) -> list[Any]:
    """What the session was asked in the scenario."""
    monkeypatch.setattr(module, "TransactionSession", Session)

    async def main() -> list[Any]:
        transaction = AsyncTransaction(NAME)
        await scenario(transaction)
        found: Any = transaction._session
        return list(found.calls)

    return asyncio.run(main())


async def asend(transaction: AsyncTransaction) -> None:
    await transaction.send_offsets({("t", 0): 1}, "g")


def test_an_async_block_opens_the_id_and_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(transaction: AsyncTransaction) -> None:
        async with transaction:
            pass
        with pytest.raises(ClientError, match="cannot be used any more"):
            await transaction.begin()

    assert run(monkeypatch, scenario) == ["open", "commit"]


def test_an_async_block_that_raises_abandons(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(transaction: AsyncTransaction) -> None:
        with pytest.raises(ZeroDivisionError):
            async with transaction:
                raise ZeroDivisionError

    assert run(monkeypatch, scenario) == ["open", "abandon"]


def test_async_transactions_follow_each_other_and_open_the_id_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(transaction: AsyncTransaction) -> None:
        for end in (transaction.commit, transaction.abort):
            await transaction.begin()
            await end()
        with pytest.raises(ClientError, match="no transaction was begun"):
            await transaction.commit()
        await transaction.close()

    assert run(monkeypatch, scenario) == ["open", "commit", "abort"]


@pytest.mark.parametrize("error", [ClientError("no"), asyncio.CancelledError()])
def test_an_async_transaction_that_failed_can_only_be_aborted(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    async def scenario(transaction: AsyncTransaction) -> None:
        await transaction.begin()
        found: Any = transaction._session
        found.fail = error
        with pytest.raises(type(error)):
            await asend(transaction)
        assert found.outcome_unknown
        with pytest.raises(ClientError, match=r"the open transaction failed .*; call abort\(\)"):
            await transaction.commit()
        await transaction.abort()
        await transaction.begin()
        await transaction.commit()
        await transaction.close()

    assert run(monkeypatch, scenario)[-2:] == ["abort", "commit"]
