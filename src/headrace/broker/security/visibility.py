# SPDX-License-Identifier: Apache-2.0
"""Which topics the sender of a request may see, create and use; everything when there is no authorizer.

Read next: authorization.py, handlers/metadata.py.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.acls import CLUSTER_NAME, SUPPORTED_OPERATIONS, Operation, ResourceType
from headrace.broker.network.request_context import RequestContext
from headrace.broker.security.authorization import Authorization, Caller
from headrace.broker.security.authorizer import Access

_TOPIC, _CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
TOPIC_OPERATIONS = sum(1 << operation for operation in SUPPORTED_OPERATIONS[_TOPIC])
"""Bit field of all operations on a topic, as Apache Kafka returns it without ACLs."""
CLUSTER_OPERATIONS = sum(1 << operation for operation in SUPPORTED_OPERATIONS[_CLUSTER])


class Visibility(NamedTuple):
    """Of one request. Valid until the ACLs change: not to be kept while a request waits."""

    caller: Caller | None
    """None: everything is allowed."""

    @classmethod
    def of(cls, authorization: Authorization | None, context: RequestContext) -> Visibility:
        caller = None if authorization is None else authorization.caller(context)
        return cls(None if caller is None or caller.access.unlimited else caller)

    @property
    def key(self) -> Access | None:
        """The same for all who see the same, as long as the ACLs do not change."""
        return None if self.caller is None else self.caller.access

    def lists(self, name: str) -> bool:
        """Whether the topic is among "all topics"; otherwise nothing is reported as denied."""
        return self.caller is None or self.caller.access.allows(Operation.DESCRIBE, _TOPIC, name)

    def may_describe(self, name: str) -> bool:
        return self.caller is None or self.caller.may_on_topic(Operation.DESCRIBE, name)

    def may_create(self, name: str) -> bool:
        """By an operation on the cluster or on the topic."""
        if self.caller is None or self.caller.access.allows(Operation.CREATE, _CLUSTER, CLUSTER_NAME):
            return True
        return self.caller.may_on_topic(Operation.CREATE, name)

    def topic_operations(self, name: str) -> int:
        return TOPIC_OPERATIONS if self.caller is None else self.caller.access.operations(_TOPIC, name)

    def cluster_operations(self) -> int:
        """Nothing for who must not describe the cluster."""
        if self.caller is None:
            return CLUSTER_OPERATIONS
        if not self.caller.may_on_cluster(Operation.DESCRIBE):
            return 0
        return self.caller.access.operations(_CLUSTER, CLUSTER_NAME)
