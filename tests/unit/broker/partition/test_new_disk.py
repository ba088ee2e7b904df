# SPDX-License-Identifier: Apache-2.0
"""A node notices that its data directory is empty, and forgets it once the cluster knows (R20)."""

from __future__ import annotations

from pathlib import Path

from headrace.broker.partition.checkpoints import BOOT_ID_FILE, NodeCheckpoints
from headrace.log.checkpoints import META_COPY_FILE, check_meta_properties
from headrace.testing.memory_files import MemoryFiles

DATA = Path("/data")


def started(files: MemoryFiles) -> NodeCheckpoints:
    checkpoints = NodeCheckpoints(files, DATA, "boot 1")
    checkpoints.note_new_disk()
    check_meta_properties(files, DATA, cluster_id="c", node_id=1, new_directory_id="d")
    checkpoints.load()
    return checkpoints


def empty_disk() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(DATA)
    files.sync_directory(Path("/"))
    return files


def test_an_empty_directory_is_a_new_disk_until_the_cluster_knows_of_it() -> None:
    files = empty_disk()
    assert started(files).new_disk
    again = started(files)
    assert again.new_disk, "the first start ended before the cluster knew"
    assert not again.lossless
    again.loss_is_known()
    after = started(files)
    assert not after.new_disk
    assert after.lossless


def test_a_directory_of_an_earlier_release_is_no_new_disk() -> None:
    """It has none of the later files."""
    files = empty_disk()
    check_meta_properties(files, DATA, cluster_id="c", node_id=1, new_directory_id="d")
    files.unlink(DATA / META_COPY_FILE)
    assert not files.exists(DATA / BOOT_ID_FILE)
    assert not started(files).new_disk
