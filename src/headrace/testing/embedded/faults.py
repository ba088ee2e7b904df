"""Faults that a test has ordered, and which request meets which. Read next: client_link.py."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

_MOST_REMEMBERED = 10_000


class Disconnect(Enum):
    BEFORE = "before"
    """The broker never gets the request."""
    AFTER = "after"
    """The broker carries the request out, and the client never gets the reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that a client sent."""

    api: str
    version: int
    client: str | None


@dataclass(slots=True, kw_only=True)
class Fault:
    """One order. What is None matches every request."""

    api: ApiKey | None
    client: str | None
    left: int
    error: ErrorCode | None = None
    disconnect: Disconnect | None = None
    drop: bool = False
    delay_s: float = 0.0

    def matches(self, api: ApiKey, client: str | None) -> bool:
        return self.left > 0 and self.api in (None, api) and self.client in (None, client)


@dataclass(slots=True)
class FaultPlan:
    """The orders of a broker and the requests it has received, newest last."""

    faults: list[Fault] = field(default_factory=list)
    received: deque[Request] = field(default_factory=lambda: deque(maxlen=_MOST_REMEMBERED))

    def meet(self, api: ApiKey, version: int, client: str | None) -> Fault | None:
        """Notes the request; the first fault that it meets, which has one occurrence less now."""
        self.received.append(Request(api=api_name(api), version=version, client=client))
        fault = next((each for each in self.faults if each.matches(api, client)), None)
        if fault is not None:
            fault.left -= 1
            if fault.left == 0:
                self.faults.remove(fault)
        return fault


    def matching(self, api: ApiKey | None, client: str | None) -> list[Request]:
        wanted = None if api is None else api_name(api)
        return [
            each
            for each in self.received
            if wanted in (None, each.api) and client in (None, each.client)
        ]


def api_name(key: ApiKey) -> str:
    """As Kafka writes it: OffsetCommit."""
    return "".join(part.capitalize() for part in key.name.split("_"))


_BY_NAME = {api_name(key).lower(): key for key in ApiKey}


def find_api(name: str) -> ApiKey:
    """Raises ValueError that lists what there is."""
    key = _BY_NAME.get(name.replace("_", "").lower())
    if key is None:
        known = ", ".join(sorted(api_name(key) for key in ApiKey))
        raise ValueError(f"there is no API {name!r}; the APIs are: {known}")
    return key


def find_error(name: str) -> ErrorCode:
    """Raises ValueError."""
    try:
        return ErrorCode[name.lower()]
    except KeyError:
        raise ValueError(f"Kafka has no error {name!r}; an example: NOT_LEADER_OR_FOLLOWER") from None
