# SPDX-License-Identifier: Apache-2.0
"""Data folders that releases left behind are opened by this tree: nothing is lost, and work goes on.

Rolling upgrades of clusters are in test_rolling_upgrade.py. Read next: tests/harness/live/release_data.py.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.conftest import StartNode
from tests.harness.live import release_data

ROOT = Path(__file__).resolve().parents[2]
RELEASES = sorted(path.stem for path in release_data.FOLDER.glob("*.json"))


def test_every_release_of_the_changelog_left_a_folder() -> None:
    """What is unreleased may change its folder until then (CONTRIBUTING.md, Releases)."""
    released = re.findall(r"^## (\d+\.\d+\.\d+) - ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert RELEASES
    assert set(released) <= set(RELEASES)


@pytest.mark.parametrize("release", RELEASES)
def test_a_folder_of_an_earlier_release_or_commit_is_opened(
    release: str, start_node: StartNode, tmp_path: Path
) -> None:
    with tarfile.open(release_data.FOLDER / f"{release}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    node = start_node(release_data.NEVER_EXPIRE, directory=tmp_path)
    seen = json.loads((release_data.FOLDER / f"{release}.json").read_text())
    topics = seen["records"].keys()
    assert release_data.observe(node.bootstrap, topics) == seen
    go_on(node.bootstrap, topics)
    now = release_data.observe(node.bootstrap, topics)
    assert new_values(seen, now) == {topic: ["new"] for topic in topics}
    node.restart()
    assert release_data.observe(node.bootstrap, topics) == now


def test_the_folder_of_every_commit_before_a_change_of_format_is_there() -> None:
    assert set(release_data.EARLIER) <= set(RELEASES)


def go_on(bootstrap: str, topics: Iterable[str]) -> None:
    """The transactional id takes over from the producer that left a transaction open."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": release_data.TRANSACTIONAL_ID}
    producer = Producer(settings)
    producer.init_transactions(15)
    producer.begin_transaction()
    for topic in topics:
        producer.produce(topic, "new", "new", 0)
    producer.commit_transaction(15)


def new_values(before: dict[str, Any], after: dict[str, Any]) -> dict[str, list[str]]:
    found = {}
    for topic, rows in after["records"].items():
        kept, added = rows[:0], []
        for row in rows:
            (kept if row in before["records"][topic] else added).append(row)
        assert kept == before["records"][topic], topic
        found[topic] = [value for _, _, _, value, _ in added]
    return found
