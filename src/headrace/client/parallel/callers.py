# SPDX-License-Identifier: Apache-2.0
"""How a worker calls the handler: in its own thread, or in a child process.

A process is spawned, never forked: the Kafka library's threads would not survive that. It ends with its
parent, however that ends, because the pipe between them closes.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Literal, NamedTuple, Protocol

from headrace.client.errors import ClientError
from headrace.client.parallel.record import FatalError, PoisonRecord, Record, RemoteError, error_text

Handler = Callable[[Record], object]
Executor = Literal["threads", "processes"]

_START_S = 60
_END_S = 2


class Caller(Protocol):
    def call(self, record: Record) -> None:
        """Returns when the record is handled; raises what the handler raised."""

    def cancel(self) -> None:
        """From another thread: the partition of the record being handled was revoked."""

    def close(self) -> None: ...


class InThread:
    """A thread cannot be interrupted: a long-running handler calls `cancelled()` (workers.py)."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def call(self, record: Record) -> None:
        self._handler(record)

    def cancel(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Answer(NamedTuple):
    """How the handler ended in the child."""

    kind: Literal["done", "failed", "poison", "fatal"]
    text: str = ""


_RAISED: dict[str, type[Exception]] = {"failed": RemoteError, "poison": PoisonRecord, "fatal": FatalError}


class InProcess:
    """A child process that handles one record at a time; a new one when it dies or is cancelled."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._context = multiprocessing.get_context("spawn")
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None

    def call(self, record: Record) -> None:
        connection = self._connection or self._start()
        try:
            connection.send(record)
            answer: _Answer = connection.recv()
        except (EOFError, OSError) as error:
            code = self._reap()
            raise RemoteError(f"the worker process ended with exit code {code}") from error
        if answer.kind != "done":
            raise _RAISED[answer.kind](answer.text)

    def cancel(self) -> None:
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.join(_END_S)
            self._reap()

    def _start(self) -> Connection:
        ours, theirs = self._context.Pipe()
        self._process = self._context.Process(
            target=serve_handler, args=(theirs, self._handler), name="headrace-worker", daemon=True
        )
        self._process.start()
        theirs.close()
        try:
            if not ours.poll(_START_S):
                raise EOFError
            ours.recv()
        except (EOFError, OSError) as error:
            ours.close()
            raise FatalError(
                f"a worker process did not start (exit code {self._reap()}): the handler must be importable, "
                f"and {_UNGUARDED}"
            ) from error
        self._connection = ours
        return ours

    def _reap(self) -> int | None:
        """Ends the child; returns its exit code."""
        process, self._process = self._process, None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if process is None:
            return None
        process.join(_END_S)
        if process.exitcode is None:
            process.kill()
            process.join()
        return process.exitcode


def serve_handler(connection: Connection, handler: Handler) -> None:
    """The main loop of the child: records in, results out, until the pipe closes."""
    # Ctrl-C signals the whole process group: the parent lets the record finish, then closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(EOFError, OSError):
        connection.send(True)
        while True:
            record: Record = connection.recv()
            connection.send(_answer(handler, record))


def _answer(handler: Handler, record: Record) -> _Answer:
    try:
        handler(record)
    except FatalError as error:
        return _Answer("fatal", str(error))
    except PoisonRecord as error:
        return _Answer("poison", str(error))
    except Exception as error:  # noqa: BLE001 - whatever a handler raises is a failed attempt
        return _Answer("failed", error_text(error))
    return _Answer("done")


_UNGUARDED = "a script must start its consumer under `if __name__ == '__main__':`"


def check_handler_travels(handler: Handler) -> None:
    """Worker processes receive the handler by its name: a lambda or an inner function has none.

    A worker process imports the script it comes from. If the script starts a consumer at import, this
    raises before it joins the group as a second member.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ClientError(
            "a consumer was started while a worker process was being set up", next_step=_UNGUARDED
        )
    try:
        pickle.dumps(handler)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ClientError(
            f"the handler cannot be sent to worker processes: {error}",
            next_step="use a function at the top of a module, or executor='threads'",
        ) from error
