# SPDX-License-Identifier: Apache-2.0
"""The states of a transactional id: what may follow what, and what an error leaves behind.

ready → open → ready; a failed transaction can only be aborted; after fencing or an unknown outcome the id is
over for this object. No I/O and no waiting: the blocks may contain either. Read next: transaction.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from headrace.client.arrow.write.transaction_session import (
    OutcomeUnknown,
    TransactionFenced,
    TransactionSession,
)
from headrace.client.errors import ClientError


class State(Enum):
    READY = "no transaction was begun"
    OPEN = "a transaction is open"
    FAILED = "the open transaction failed and can only be aborted"
    OVER = "this transactional id cannot be used any more here"


_NEXT_STEP = {
    State.READY: "call begin() first, or use it in a with block",
    State.OPEN: "commit or abort it first",
    State.FAILED: "call abort(), then begin() and repeat the whole transaction",
    State.OVER: "open it again and repeat the whole transaction",
}


class TransactionStates:
    """`begin`, then `part` around each part of the transaction, then `end` around its commit or abort."""

    def __init__(self, session: TransactionSession) -> None:
        self._session = session
        self._state = State.READY
        self._why: ClientError | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction to commit or to abort."""
        return self._state in (State.OPEN, State.FAILED)

    @property
    def text(self) -> str:
        return self._state.value

    def need_ready(self) -> None:
        self._need(State.READY, "begin a transaction")

    def begin(self) -> None:
        self.need_ready()
        self._state = State.OPEN

    def close(self) -> None:
        self._state = State.OVER

    @contextmanager
    def part(self, what: str) -> Iterator[None]:
        """Around a part of the open transaction; if it fails, the transaction can only be aborted."""
        self._need(State.OPEN, what)
        try:
            yield
        except ClientError as error:
            explained = self._session.explained(error)
            self._spoil(explained)
            if explained is error:
                raise
            raise explained from error
        except BaseException as error:
            self._spoil(ClientError(f"{what} was interrupted: {type(error).__name__}"))
            raise

    @contextmanager
    def end(self, *, committed: bool) -> Iterator[None]:
        """Around the commit or the abort."""
        if committed or self._state is not State.FAILED:
            self._need(State.OPEN, "commit" if committed else "abort")
        try:
            yield
        except ClientError as error:
            over = isinstance(error, TransactionFenced | OutcomeUnknown)
            self._state, self._why = State.OVER if over else State.FAILED, error
            raise
        except BaseException as error:
            self._state = State.OVER
            self._why = ClientError(f"its end was interrupted: {type(error).__name__}")
            raise
        self._state, self._why = State.READY, None

    def _need(self, state: State, what: str) -> None:
        if self._state is state:
            return
        raise ClientError(
            f"cannot {what}: {self._state.value}{f' ({self._why.what})' if self._why else ''}",
            next_step=_NEXT_STEP[self._state],
        ) from self._why

    def _spoil(self, why: ClientError) -> None:
        self._session.outcome_unknown = True
        self._state = State.OVER if isinstance(why, TransactionFenced) else State.FAILED
        self._why = why
