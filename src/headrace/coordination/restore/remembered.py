# SPDX-License-Identifier: Apache-2.0
"""What a node remembers of the coordination store, in a file of its data folder beside meta.properties.

An additional file: earlier releases leave it alone, and a folder without one takes any store of its cluster.
Read next: recovery/history.py (what is compared).
"""

from __future__ import annotations

import logging
from pathlib import Path

from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.coordination.recovery import history
from headrace.coordination.recovery.history import StorePosition
from headrace.coordination.store import StoreWentBack
from headrace.errors import CoordinationError
from headrace.world import Files, World, read_file, replace_file

POSITION_FILE = "headrace-store-position"

_log = logging.getLogger(__name__)


class RememberedStore:
    """Reads and writes the file. It is written every few seconds, when there were commits."""

    def __init__(self, world: World, directory: Path, address: str) -> None:
        """`address`: of the store, as an operator names it."""
        self._files: Files = world.files
        self._path = directory / POSITION_FILE
        self._address = address
        self._thread = world.tasks.thread("store position")
        self._saved: StorePosition | None = None

    async def check(self, cluster: ClusterMetadata) -> bool:
        """Raises StoreWentBack for a store that is older than what the node has seen.

        Otherwise a new store epoch begins. True: the store was declared newer since the node last ran.
        """
        seen = await self._thread.run(self._load)
        found = cluster.store_history
        contradiction = history.why_behind(found, cluster.commits, seen)
        if contradiction is not None:
            raise StoreWentBack(self.refusal(contradiction))
        declared = history.is_declared_newer(found, seen)
        if declared:
            _log.warning(
                "the coordination store %s was restored since this node last ran: logs of topics that it "
                "does not have are kept aside", self._address
            )  # fmt: skip
        await cluster.begin_store_epoch()
        return declared

    @property
    def saved(self) -> bool:
        return self._saved is not None

    def refusal(self, contradiction: str) -> str:
        return (
            f"the coordination store {self._address} was put back to an older copy: {contradiction}. Put the "
            "newest copy back or, to go on with this one all the same, stop all nodes and run: "
            f"headrace store accept --coordination {self._address}"
        )

    async def save(self, cluster: ClusterMetadata) -> None:
        """Nothing when nothing was committed since."""
        position = history.position_in(cluster.store_history, cluster.commits)
        if position is not None and position != self._saved:
            await self._thread.run(self._write, position)

    def _load(self) -> StorePosition | None:
        try:
            return history.decode_position(str(self._path), read_file(self._files, self._path))
        except FileNotFoundError:
            return None
        except CoordinationError as error:
            _log.warning("%s; whether the coordination store is an older copy is not checked", error)
            return None

    def _write(self, position: StorePosition) -> None:
        replace_file(self._files, self._path, history.encode_position(position))
        self._saved = position
