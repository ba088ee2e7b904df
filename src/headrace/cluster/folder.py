# SPDX-License-Identifier: Apache-2.0
"""The directory of a cluster on this host: the plan, the files of each node, and the locks.

    cluster.json            the plan, changed only while the lock is held
    coordination/           the SQLite store of Headrace nodes
    node-N/                 data, settings and log of node N, and node.pid
    cores/N/                instead, of a core: data, node.pid and what it said when it was ready
    security/               certificates and client files of a secure cluster (security.py)

Does not start or stop processes. Read next: processes.py, supervisor.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from headrace.cluster.engines.engine import write_private
from headrace.cluster.plan import ClusterError, ClusterPlan, plan_of
from headrace.realworld import RealFiles

_POLL_S = 0.005
PLAN_FILE = "cluster.json"
_LOCK, _SUPERVISOR = ".cluster.lock", ".supervisor.lock"
_CORES = "cores"
"""Not `node-N`, which in a directory with data is partition N of a topic `node`."""


class ClusterFolder:
    """Reads and changes the plan of one cluster; one supervisor at a time holds its lock."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()

    @property
    def exists(self) -> bool:
        return (self.path / PLAN_FILE).exists()

    def node(self, node_id: int) -> Path:
        cores = self.path / _CORES
        return cores / str(node_id) if cores.is_dir() else self.path / f"node-{node_id}"

    def read(self) -> ClusterPlan:
        path = self.path / PLAN_FILE
        try:
            return plan_of(json.loads(path.read_text()))
        except FileNotFoundError:
            raise ClusterError(
                f"there is no cluster in {self.path}",
                f"start one: headrace cluster up --nodes 3 --dir {self.path}",
            ) from None
        except (ValueError, TypeError, LookupError) as error:
            raise ClusterError(
                f"{path} is not a cluster plan ({type(error).__name__}: {error})",
                "name another directory with --dir, or move this file away",
            ) from error

    def create(self, plan: ClusterPlan) -> None:
        """ClusterError if the directory already holds a cluster."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ClusterError(
                f"cannot create the directory {self.path} ({error.strerror})", "name another with --dir"
            ) from error
        with self._locked():
            if self.exists:
                raise ClusterError(f"there is a cluster in {self.path} already", "name another with --dir")
            if plan.cores:
                (self.path / _CORES).mkdir(mode=0o700, exist_ok=True)
            self._write(plan)

    def change(self, step: Callable[[ClusterPlan], ClusterPlan]) -> ClusterPlan:
        """Applies `step` to the plan under the lock, writes the result and returns it."""
        if not self.exists:
            self.read()
        with self._locked():
            plan = step(self.read())
            self._write(plan)
            return plan

    @contextlib.contextmanager
    def supervised(self) -> Iterator[None]:
        """Holds the supervisor lock; the kernel releases it when the process dies."""
        try:
            lock = RealFiles().lock(self.path / _SUPERVISOR)
        except BlockingIOError:
            raise ClusterError(
                f"the cluster in {self.path} is running already",
                f"see: headrace cluster status --dir {self.path}",
            ) from None
        try:
            yield
        finally:
            lock.release()

    def is_supervised(self) -> bool:
        try:
            with self.supervised():
                return False
        except ClusterError:
            return True

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        while True:
            try:
                lock = RealFiles().lock(self.path / _LOCK)
                break
            except BlockingIOError:  # held only while one small file is written
                time.sleep(_POLL_S)
        try:
            yield
        finally:
            lock.release()

    def _write(self, plan: ClusterPlan) -> None:
        temporary = self.path / f"{PLAN_FILE}.{os.getpid()}.tmp"
        write_private(temporary, json.dumps(plan.document(), indent=2) + "\n")
        temporary.replace(self.path / PLAN_FILE)
