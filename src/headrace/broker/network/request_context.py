# SPDX-License-Identifier: Apache-2.0
"""Context of a request, reply types and the type of handlers.

Read next: dispatch/dispatcher.py (calls the handlers), handlers/ (one module per API family).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from headrace.broker.metrics import ClientActivity
from headrace.principal import ANONYMOUS, Principal
from headrace.wire.messages import with_correlation_id


class RequestContext(NamedTuple):
    """Header fields and connection of one request; a tuple, since one is built for every request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    listener: str
    peer: str
    principal: Principal = ANONYMOUS
    """Of the connection, or of the client for whom another node forwarded the request."""
    forwarded: bool = False
    """Whether another node has forwarded it: then it is not forwarded again."""
    activity: ClientActivity | None = None
    """Of the connection; None for a forwarded request, whose connection is that of a node."""


class EncodedReply(bytes):
    """A complete reply frame from a cache; its correlation id (bytes 4 to 8) is replaced before sending."""

    def for_request(self, correlation_id: int) -> bytes:
        return with_correlation_id(self, correlation_id)


Reply = dict[str, Any] | EncodedReply
Handler = Callable[[RequestContext, Any], Awaitable[Reply]]
