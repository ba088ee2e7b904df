"""What a handler is told about a request, and the ways it may answer.

Read next: dispatch.py (who calls handlers), handlers/ (one module per family).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from headrace.broker.node import Broker


class RequestContext(NamedTuple):
    """Made for every request: a tuple takes a third of a dataclass's time."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    listener: str
    peer: str


class EncodedReply(bytes):
    """A whole reply frame, kept encoded; its correlation id (bytes 4 to 8) is replaced before it is sent."""

    def for_request(self, correlation_id: int) -> bytes:
        return b"".join((self[:4], correlation_id.to_bytes(4, "big", signed=True), self[8:]))


Reply = dict[str, Any] | EncodedReply
Handler = Callable[["Broker", RequestContext, Any], Awaitable[Reply]]
