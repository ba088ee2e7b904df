# SPDX-License-Identifier: Apache-2.0
"""The current leader in Produce and Fetch replies to a client that asked another node (KIP-951).

It saves the client a Metadata request. Produce before version 10 and Fetch before 16 have only the code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple
from uuid import UUID

from headrace.types import NO_NODE, ClusterView
from headrace.wire.error_codes import ErrorCode
from headrace.wire.requests.topic_entries import NodeEndpoint

MISLED = frozenset({ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch})


class Hint(NamedTuple):
    leader: int
    leader_epoch: int


NO_HINT = Hint(NO_NODE, -1)


class LeaderHints:
    def __init__(self, node_id: int, view: Callable[[], ClusterView]) -> None:
        self._node_id = node_id
        self._view = view

    def hint(self, code: ErrorCode, name: str | None, topic_id: UUID | None, index: int) -> Hint:
        """NO_HINT for other errors, and where no other node leads."""
        if code not in MISLED:
            return NO_HINT
        view = self._view()
        topic = view.topics.get(name) if name is not None else view.topic_by_id(topic_id or UUID(int=0))
        if topic is None or not 0 <= index < len(topic.partitions):
            return NO_HINT
        state = topic.partitions[index]
        if state.leader == self._node_id or state.leader not in view.nodes:
            return NO_HINT
        return Hint(state.leader, state.leader_epoch)

    def endpoints(self, leaders: Iterable[int], listener: str) -> list[NodeEndpoint]:
        """Addresses of these nodes on the listener that the client uses."""
        nodes = self._view().nodes
        found = []
        for leader in sorted(set(leaders) & nodes.keys()):
            endpoint = nodes[leader].endpoint(listener)
            if endpoint is not None:
                found.append(NodeEndpoint(leader, endpoint.host, endpoint.port, nodes[leader].rack))
        return found
