# SPDX-License-Identifier: Apache-2.0
"""The level of Kafka's feature `transaction.version`: which one the nodes of a cluster can have in common.

Pure: a view in, a level out. Why it rises and falls as it does: docs/decisions/0030. Read next:
broker/controller/feature_levels.py (writes it), projection.py (what a view shows).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from headrace.coordination.documents import TRANSACTION_VERSION
from headrace.types import ClusterView, Node

SERVED = (0, 2)
"""Lowest and highest level of this release."""
SETTING = "headrace.transaction.version"


def highest_served(nodes: Iterable[Node], limit: int) -> int:
    """The highest level up to `limit` that each of the nodes serves; 0 when there is none."""
    ranges = [node.transaction_versions for node in nodes]
    levels = range(limit, 0, -1)
    return next((level for level in levels if all(low <= level <= high for low, high in ranges)), 0)


def level_in_effect(nodes: Iterable[Node], finalized: int) -> int:
    """What nodes act on: never more than each of them serves, also before the controller has written it."""
    return highest_served(nodes, min(finalized, SERVED[1]))


def finalized_level(view: ClusterView) -> int:
    return view.finalized_features.levels.get(TRANSACTION_VERSION, 0)


class NextLevel(NamedTuple):
    level: int
    awaited: list[int]
    """Nodes that must be registered before it rises."""


def level_to_finalize(view: ClusterView, *, held_at: int, replica_holders: Collection[int]) -> NextLevel:
    """Falls at once; rises only while each node that holds replicas is registered.

    What a stopped node serves when it returns is unknown: it may be of an earlier release, which writes no
    transaction index for the records that it has missed.
    """
    registered = view.registered
    present = finalized_level(view)
    common = highest_served(registered.values(), min(held_at, SERVED[1]))
    awaited = sorted(set(replica_holders) - registered.keys()) if common > present else []
    return NextLevel(present if awaited else common, awaited)


def why_no_transactions(view: ClusterView) -> str:
    """For clients, while the level in effect is 0."""
    earlier = sorted(
        node_id for node_id, node in view.registered.items() if node.transaction_versions[1] == 0
    )
    if earlier:
        listed = ", ".join(map(str, earlier))
        return f"Transactions are not served while nodes of an earlier release are registered: {listed}"
    return f"Transactions are not served: {TRANSACTION_VERSION} is 0, by {SETTING} or until all nodes are up"
