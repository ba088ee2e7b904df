# SPDX-License-Identifier: Apache-2.0
"""Asks the authorizer for the sender of a request and reports what was denied.

Knows no API: which operation a request needs is in wire/api_authorization.py.
Read next: authorizer.py, broker/authorization/ (splits requests into allowed and denied entries).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from headrace.acls import CLUSTER_NAME, Operation, ResourceType
from headrace.broker.metrics import ClientActivity
from headrace.broker.network.request_context import RequestContext
from headrace.broker.security.authorizer import Access, Authorizer
from headrace.principal import Principal
from headrace.wire.error_codes import ErrorCode


class Denial(NamedTuple):
    """What was denied to whom, for the audit log (S21)."""

    principal: Principal
    host: str
    api_key: int
    operation: Operation
    resource_type: ResourceType
    resource_name: str


OnDenied = Callable[[Denial], None]

_CODES = {
    ResourceType.TOPIC: ErrorCode.topic_authorization_failed,
    ResourceType.GROUP: ErrorCode.group_authorization_failed,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
}


class Caller(NamedTuple):
    """The sender of one request. Valid until the ACLs change: not to be kept while a request waits."""

    principal: Principal
    host: str
    api_key: int
    access: Access
    on_denied: OnDenied
    activity: ClientActivity | None = None

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """A denial is reported; ask `access` when it does not refuse anything."""
        if self.access.allows(operation, resource_type, name):
            return True
        self.refuse(operation, resource_type, name)
        return False

    def refuse(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Reports a denial."""
        if self.activity is not None:
            code = _CODES.get(resource_type, ErrorCode.cluster_authorization_failed)
            self.activity.failed(self.api_key, code)
        self.on_denied(Denial(self.principal, self.host, self.api_key, operation, resource_type, name))

    def may_on_topic(self, operation: Operation, name: str) -> bool:
        return self.may(operation, ResourceType.TOPIC, name)

    def may_on_cluster(self, operation: Operation) -> bool:
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def denied_topics(self, operation: Operation, names: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in set(names) if not self.may_on_topic(operation, name))


class AuthorizedConnection(Protocol):
    """What is asked of a connection whose requests are authorized."""

    principal: Principal
    peer: str
    access: Any


class Authorization:
    """`on_denied`: called with every denial that a client gets to know."""

    def __init__(self, authorizer: Authorizer, on_denied: OnDenied) -> None:
        self._authorizer = authorizer
        self.on_denied = on_denied

    def caller(self, context: RequestContext) -> Caller:
        return self.sender(context.principal, context.peer, context.api_key, context.activity)

    def access(self, connection: AuthorizedConnection) -> Access:
        """Of its principal by the present ACLs; kept in the connection, which forgets it when they change."""
        access: Access | None = connection.access
        if access is None:
            access = self.sender(connection.principal, connection.peer, -1).access
            connection.access = access
        return access

    def refuse(
        self,
        connection: AuthorizedConnection,
        api_key: int,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> None:
        """Reports what `access` denied."""
        self.sender(connection.principal, connection.peer, api_key).refuse(operation, resource_type, name)

    def sender(
        self, principal: Principal, peer: str, api_key: int, activity: ClientActivity | None = None
    ) -> Caller:
        """`peer` as `HOST:PORT`."""
        host = peer.rpartition(":")[0]
        access = self._authorizer.access(principal, host)
        return Caller(principal, host, api_key, access, self.on_denied, activity)
