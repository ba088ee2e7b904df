# SPDX-License-Identifier: Apache-2.0
"""CPU time and resident memory of a process tree, from /proc or, where there is none (macOS), from `ps`.

Used by engine.py, so that both engines are measured alike.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStats:
    pids: tuple[int, ...]
    cpu_seconds: float
    rss_bytes: int


def read_process_tree(pid: int) -> ProcessStats:
    """Sums over the process and all its descendants; ended processes are ignored."""
    if (_PROC / "self" / "stat").exists():
        return _read_from_proc(pid)
    return parse_ps(_run_ps(), pid)


def _read_from_proc(root: int) -> ProcessStats:
    page_size = os.sysconf("SC_PAGE_SIZE")
    pids: list[int] = []
    cpu_seconds = 0.0
    pages = 0
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        try:
            stat = (_PROC / str(pid) / "stat").read_text()
            waiting.extend(_children(pid))
        except (FileNotFoundError, ProcessLookupError):
            continue
        times = parse_proc_stat(stat)
        pids.append(pid)
        cpu_seconds += _own_cpu_seconds(pid, times) + times.waited_children_ticks / _TICKS_PER_SECOND
        pages += times.resident_pages
    return ProcessStats(pids=tuple(pids), cpu_seconds=cpu_seconds, rss_bytes=pages * page_size)


def _own_cpu_seconds(pid: int, times: ProcStat) -> float:
    """From the process's CPU clock, in nanoseconds; /proc has ticks of 10 ms."""
    cpu_clock = (~pid << 3) | 2  # what clock_getcpuclockid(3) computes
    try:
        return time.clock_gettime(cpu_clock)
    except OSError:
        return times.own_ticks / _TICKS_PER_SECOND


class ProcStat(NamedTuple):
    own_ticks: int
    waited_children_ticks: int
    """Includes CPU time of worker processes that have ended."""
    resident_pages: int


def parse_proc_stat(stat: str) -> ProcStat:
    """One /proc/PID/stat line."""
    # The command name is in parentheses and may contain spaces and parentheses.
    fields = stat[stat.rindex(")") + 2 :].split()
    user, system, waited_user, waited_system = (int(field) for field in fields[11:15])
    return ProcStat(user + system, waited_user + waited_system, int(fields[21]))


def _children(pid: int) -> Iterable[int]:
    for task in (_PROC / str(pid) / "task").iterdir():
        try:
            text = (task / "children").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        yield from (int(child) for child in text.split())


def _run_ps() -> str:
    command = ["ps", "-A", "-o", "pid=,ppid=,rss=,time="]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def parse_ps(listing: str, root: int) -> ProcessStats:
    """The tree below `root` in the output of `ps -A -o pid=,ppid=,rss=,time=`."""
    rows: dict[int, tuple[int, int, float]] = {}
    for line in listing.splitlines():
        pid, parent, rss_kib, used = line.split()
        rows[int(pid)] = (int(parent), int(rss_kib), _seconds(used))
    members = [root] if root in rows else []
    for member in members:  # grows while it is walked: breadth first
        members.extend(pid for pid, (parent, _, _) in rows.items() if parent == member)
    return ProcessStats(
        pids=tuple(members),
        cpu_seconds=sum(rows[pid][2] for pid in members),
        rss_bytes=sum(rows[pid][1] for pid in members) * 1024,
    )


def _seconds(used: str) -> float:
    """`[[DD-]HH:]MM:SS[.ss]` as ps prints it."""
    days, _, clock = used.rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + (int(days) * 86_400 if days else 0)
