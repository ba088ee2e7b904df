# SPDX-License-Identifier: Apache-2.0
"""Nodes of an earlier commit, beside those of this tree: what a rolling upgrade starts from.

The sources come from the repository's own history; where that is not at hand, such tests are left out.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from headrace.cluster.engines.engine import PreparedNode
from tests.harness.left_out import leave_out

ROOT = Path(__file__).resolve().parents[3]
LAST_WITHOUT_LOGINS = "a5aae69"
"""Its nodes do not log in to each other."""
LAST_WITHOUT_TRANSACTIONS = "5043bf5"
"""Its nodes neither serve transactions nor say which levels of transaction.version they serve."""

LAST_WITHOUT_STORE_HISTORY = "3c6152b"
"""Its nodes do not notice a coordination store that was put back to an older copy."""

LAST_WITHOUT_REPAIRS = "a09e440b"
"""Its nodes fetch a damaged log as a whole. Their entries say neither that their disk was replaced, nor in
which leader epoch they fetched for a damaged log."""


def earlier_sources(commit: str, folder: Path) -> Path:
    """The package as of that commit, with compiled kernels, in this folder."""
    sources = extract_sources(commit, folder)
    build = [sys.executable, "-m", "headrace.kernels.build", str(sources / "headrace" / "kernels")]
    subprocess.run(build, check=True, capture_output=True)
    return sources


def extract_sources(commit: str, folder: Path) -> Path:
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", commit, "src"], capture_output=True, check=False
    )
    if archive.returncode:
        leave_out("rolling upgrade", f"the history of the repository does not have {commit}")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder / "src"


class MixedReleases:
    """Starts nodes from the earlier sources until they are upgraded; for `LiveCluster(dress=…)`."""

    def __init__(self, earlier: Path) -> None:
        self._earlier = earlier
        self.upgraded: set[int] = set()

    def __call__(self, node_id: int, prepared: PreparedNode) -> PreparedNode:
        if node_id in self.upgraded:
            return prepared
        return replace(prepared, environment={**prepared.environment, "PYTHONPATH": str(self._earlier)})
