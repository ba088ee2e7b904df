# SPDX-License-Identifier: Apache-2.0
"""What a view is: a name, and a function from what is known of the cluster to a JSON document.

The web pages, `headrace mcp` and `headrace top` show the same documents (docs/design/console.md lists them).
A view knows no viewer, no HTTP and no drawing. Read next: registry.py, console/observing/observer.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from headrace.client.cluster import Cluster
from headrace.client.network_client import NetworkClient
from headrace.console.state.model import Snapshot
from headrace.errors import HeadraceError

T = TypeVar("T")
Document = dict[str, Any]
Params = Mapping[str, str]


class ViewError(HeadraceError):
    """A view cannot be shown; `next_step` says what to do."""

    def __init__(self, what: str, *, next_step: str | None = None, status: int = 404) -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step
        self.status = status
        """The HTTP status that says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """What an open page shows: asked for three times a second, not every few seconds."""

    topics: frozenset[str] = field(default_factory=frozenset)
    groups: frozenset[str] = field(default_factory=frozenset)


class Source(Protocol):
    """What views may use. One per principal, shared by all its viewers."""

    @property
    def cluster(self) -> Cluster: ...

    @property
    def network(self) -> NetworkClient:
        """For requests that no snapshot answers. Views that use it have a `refresh_s`."""
        ...

    def now(self) -> Snapshot: ...

    async def at(self, at_ms: int) -> Snapshot:
        """From recorded events. ViewError where none are kept for that time."""
        ...

    async def run(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """A blocking function of client/tools, in one of a few threads."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    name: str
    build: Callable[[Source, Snapshot, Params], Awaitable[Document]]
    refresh_s: float | None = None
    """None: made again when the snapshot changed, at most ten times a second; else every so many seconds."""
    interest: Callable[[Params], Interest] = lambda params: Interest()
    history: bool = False
    """Whether it can show a moment of the past (parameter `at`, milliseconds)."""
