# SPDX-License-Identifier: Apache-2.0
"""Faults that a test has ordered, and which request meets which. Read next: client_link.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum

from headrace.testing.embedded.error_replies import SESSION_ERRORS, names_no_partitions
from headrace.testing.embedded.message_fields import TopicName
from headrace.testing.embedded.names import api_name
from headrace.testing.embedded.received import (
    ReceivedRequest,
    RequestLog,
    asks_for_all_topics,
    asks_for_no_topic,
)
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

MoveLeader = Callable[[str, int, int], Awaitable[None]]
"""(topic, partition, the node that becomes its leader)."""


class Disconnect(Enum):
    BEFORE = "before"
    """The broker never gets the request."""
    AFTER = "after"
    """The broker carries the request out, and the client never gets the reply."""


def find_disconnect(when: str) -> Disconnect:
    """Raises ValueError."""
    try:
        return Disconnect(when)
    except ValueError:
        raise ValueError(f"disconnect is 'before' or 'after', not {when!r}") from None


@dataclass(slots=True, kw_only=True)
class Fault:
    """What `Broker.fail` has ordered; `met` counts the requests that have met it. None: any, or always."""

    api: ApiKey | None
    client: str | None
    topic: str | None
    partition: int | None
    times: int | None
    error: ErrorCode | None = None
    disconnect: Disconnect | None = None
    drop: bool = False
    delay_s: float = 0.0
    move_leader_to: int | None = None
    met: int = 0
    problem: str | None = None
    """Why it could not do what it should, when a request met it."""

    def __str__(self) -> str:
        shown = {
            "api": None if self.api is None else api_name(self.api),
            "client": self.client,
            "topic": self.topic,
            "partition": self.partition,
            "error": None if self.error is None else self.error.name.upper(),
            "disconnect": None if self.disconnect is None else self.disconnect.value,
            "drop": self.drop or None,
            "delay": self.delay_s or None,
            "move_leader_to": self.move_leader_to,
        }
        given = [f"{name}={value!r}" for name, value in shown.items() if value is not None]
        return f"fail({', '.join(given)}, times={self.times})"

    def check(self) -> None:
        """Raises ValueError when it says nothing, or what cannot be."""
        ways = (self.error, self.disconnect, self.drop or None, self.delay_s or None, self.move_leader_to)
        if all(way is None for way in ways):
            raise ValueError("say how it fails: error=, disconnect=, drop=, delay= or move_leader_to=")
        if self.error is not None and (self.drop or self.disconnect is not None):
            raise ValueError("a request that gets an error= is answered: leave out drop= and disconnect=")
        if self.drop and self.disconnect is not None:
            raise ValueError("drop= keeps the connection open and disconnect= ends it: leave out one of them")
        if self.topic is None and (self.partition is not None or self.move_leader_to is not None):
            raise ValueError("say of which topic: topic=")
        if self.times is not None and self.times < 1:
            raise ValueError(f"times is at least 1, or None for all requests, not {self.times}")

    @property
    def is_over(self) -> bool:
        return self.times is not None and self.met >= self.times

    def is_for_partitions_of(self, request: ReceivedRequest) -> bool:
        return (
            not self.is_over
            and self.api in (None, request.api)
            and self.client in (None, request.client)
            and (self.topic is not None or self.error not in (None, *SESSION_ERRORS))
        )

    def concerns(self, request: ReceivedRequest) -> bool:
        if self.api not in (None, request.api) or self.client not in (None, request.client):
            return False
        if request.api is ApiKey.METADATA and self.error is not None and asks_for_no_topic(request):
            return False  # its reply has no place for an error
        if self.topic is None or asks_for_all_topics(request):
            return True
        partitions = request.topics.get(self.topic)
        return partitions is not None and (self.partition is None or self.partition in partitions)


@dataclass(slots=True)
class FaultPlan:
    """The faults of a broker, oldest first, with those that are over."""

    requests: RequestLog
    topic_name: TopicName
    move_leader: MoveLeader
    ordered: list[Fault] = field(default_factory=list)

    def meet(self, request: ReceivedRequest) -> Fault | None:
        """The first fault that concerns the request, which has been met once more now."""
        for fault in self.ordered:
            if not fault.is_over and fault.concerns(request):
                fault.met += 1
                return fault
        return None

    def needs_partitions(self, request: ReceivedRequest) -> bool:
        """Whether it is a Fetch that has to name its partitions first: in a session it leaves them out."""
        return (
            request.api is ApiKey.FETCH
            and any(each.is_for_partitions_of(request) for each in self.ordered)
            and request.message is not None
            and names_no_partitions(request.message)
        )

    def unmet_report(self) -> str | None:
        """What to tell of faults that no request has met, or that have failed themselves; None: nothing."""
        wrong = [each for each in self.ordered if each.problem is not None or not each.met]
        if not wrong:
            return None
        lines = [f"  {each}: {each.problem or 'met by no request'}" for each in wrong]
        seen = Counter((request.api_name, request.client) for request in self.requests.all())
        received = [f"  {count} × {api} of client {client!r}" for (api, client), count in seen.items()]
        return "\n".join(
            ["faults that had no effect:", *lines, "requests received:", *(received or ["  none"])]
        )
