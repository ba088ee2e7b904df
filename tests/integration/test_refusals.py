# SPDX-License-Identifier: Apache-2.0
"""A node that cannot start says why in one line, with what to do. More of them: test_cli_serve.py."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.left_out import leave_out
from tests.harness.live.node import NodeProcess


@pytest.fixture
def read_only_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "read-only"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,ro", "tmpfs", str(mount)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        leave_out("small disks", f"no right to mount a tmpfs: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "--lazy", str(mount)], check=True)


def _one_line(node: NodeProcess) -> str:
    done = node.run_to_end()
    assert done.returncode != 0
    lines = (done.stdout + done.stderr).strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_a_disk_that_cannot_be_written_is_one_line(read_only_disk: Path) -> None:
    line = _one_line(NodeProcess(read_only_disk / "node"))
    assert str(read_only_disk) in line
    assert "--data" in line


def test_a_second_node_on_one_data_directory_is_refused_and_the_first_keeps_running(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "node") as first:
        line = _one_line(NodeProcess(tmp_path / "node"))
        assert str(first.data) in line
        assert "in use by another node" in line
        assert first.alive


def test_a_data_directory_of_a_newer_format_is_refused_untouched(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "node")
    with node:
        pass
    properties = node.data / "meta.properties"
    newer = properties.read_text().replace("headrace.format=1", "headrace.format=99")
    assert "headrace.format=99" in newer
    properties.write_text(newer)
    line = _one_line(node)
    assert "99" in line
    assert properties.read_text() == newer


def test_a_bad_config_file_names_file_line_key_and_the_nearest_one(tmp_path: Path) -> None:
    file = tmp_path / "node.properties"
    file.write_text("# my node\nlog.retention.hours=24\nlog.segment.byte=1000000\n")
    line = _one_line(NodeProcess(tmp_path / "node", arguments=["--config", str(file)]))
    assert f"{file}:3" in line or (str(file) in line and "line 3" in line)
    assert "log.segment.byte" in line
    assert "log.segment.bytes" in line
