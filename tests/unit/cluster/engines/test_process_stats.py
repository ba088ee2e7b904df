# SPDX-License-Identifier: Apache-2.0
"""The ruler that both engines are measured with."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headrace.cluster.engines.process_stats import parse_proc_stat, parse_ps, read_process_tree
from tests.harness.waiting import wait_until


def test_a_command_name_with_spaces_and_parentheses_does_not_shift_the_fields() -> None:
    stat = "42 (a (b) c) S 1 42 42 0 -1 4194560 10 0 0 0 100 20 3 4 20 0 9 0 777 5000 321 99 1"
    assert parse_proc_stat(stat) == (120, 7, 321)


def test_ps_listing_is_summed_over_the_whole_tree_and_nothing_else() -> None:
    listing = """
      1     0   100   1:00.00
     10     1  1000   0:01.50
     11    10   500   1-00:00:02
     12    11   250   00:03
     20     1  9999   9:00.00
    """.strip("\n")
    listing = "\n".join(line for line in listing.splitlines() if line.strip())
    stats = parse_ps(listing, 10)
    assert stats.pids == (10, 11, 12)
    assert stats.rss_bytes == 1750 * 1024
    assert stats.cpu_seconds == pytest.approx(1.5 + 86_402 + 3)


def test_a_process_that_is_gone_counts_as_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert read_process_tree(child.pid).pids == ()


def test_own_tree_includes_a_child_and_its_memory() -> None:
    alone = read_process_tree(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        wait_until(lambda: read_process_tree(child.pid).rss_bytes >= 1 << 20, "a child with its memory")
        together = read_process_tree(os.getpid())
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.close()
    assert child.pid in together.pids
    assert together.rss_bytes > alone.rss_bytes
