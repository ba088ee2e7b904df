# SPDX-License-Identifier: Apache-2.0
"""Finalizes the level of `transaction.version` in the store, as the controller.

The decision is a pure function in coordination/transaction_version.py; docs/decisions/0030 says why.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection

from headrace.config import NodeConfig
from headrace.coordination.cluster_metadata import Changed, ClusterMetadata
from headrace.coordination.documents import TRANSACTION_VERSION
from headrace.coordination.transaction_version import SETTING, finalized_level, level_to_finalize

logger = logging.getLogger(__name__)


class FeatureLevels:
    def __init__(
        self, *, cluster: ClusterMetadata, config: NodeConfig, replica_holders: Callable[[], Collection[int]]
    ) -> None:
        """`replica_holders` returns the ids of the nodes that hold a replica of some partition."""
        self._cluster = cluster
        self._config = config
        self._replica_holders = replica_holders
        self._awaited: list[int] = []

    async def finalize(self) -> None:
        view = self._cluster.view
        present = finalized_level(view)
        level, awaited = level_to_finalize(
            view, held_at=self._held_at(), replica_holders=self._replica_holders()
        )
        self._report_awaited(awaited)
        if level == present:
            return
        with contextlib.suppress(Changed):
            await self._cluster.finalize_feature(TRANSACTION_VERSION, level)
            logger.info("%s is %d now, was %d", TRANSACTION_VERSION, level, present)

    def _held_at(self) -> int:
        """The lowest of all nodes; of what they were started with, only this node's is known here."""
        configs = self._cluster.view.node_configs
        of_all = configs.get("", {}).get(SETTING, str(self._config[SETTING]))
        of_each = (configs.get(str(node), {}).get(SETTING, of_all) for node in self._cluster.view.registered)
        return min((int(text) for text in of_each), default=int(of_all))

    def _report_awaited(self, node_ids: list[int]) -> None:
        if node_ids and node_ids != self._awaited:
            logger.info(
                "%s rises when these nodes are registered, or no longer hold replicas: %s",
                TRANSACTION_VERSION,
                ", ".join(map(str, node_ids)),
            )
        self._awaited = node_ids
