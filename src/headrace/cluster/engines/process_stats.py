"""CPU time and resident memory of a process tree, from /proc or, where there is none (macOS), from `ps`.

Knows no broker. Used by engine.py, so that both engines are measured by the same ruler.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStats:
    pids: tuple[int, ...]
    cpu_seconds: float
    rss_bytes: int


def read_process_tree(pid: int) -> ProcessStats:
    """Sums over the process and all its descendants; a process that has ended counts as nothing."""
    if (_PROC / "self" / "stat").exists():
        return _read_from_proc(pid)
    return parse_ps(_run_ps(), pid)


def _read_from_proc(root: int) -> ProcessStats:
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    page_size = os.sysconf("SC_PAGE_SIZE")
    pids: list[int] = []
    ticks = pages = 0
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        try:
            stat = (_PROC / str(pid) / "stat").read_text()
            waiting.extend(_children(pid))
        except (FileNotFoundError, ProcessLookupError):
            continue
        process_ticks, process_pages = parse_proc_stat(stat)
        pids.append(pid)
        ticks += process_ticks
        pages += process_pages
    return ProcessStats(pids=tuple(pids), cpu_seconds=ticks / ticks_per_second, rss_bytes=pages * page_size)


def parse_proc_stat(stat: str) -> tuple[int, int]:
    """(CPU ticks, resident pages) of one /proc/PID/stat line.

    The ticks include children that have ended and were waited for: work of a finished worker process is
    still the broker's work.
    """
    # The command name stands in parentheses and may itself hold spaces and parentheses.
    fields = stat[stat.rindex(")") + 2 :].split()
    user, system, waited_user, waited_system = (int(field) for field in fields[11:15])
    return user + system + waited_user + waited_system, int(fields[21])


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
        pid, parent, rss_kib, time = line.split()
        rows[int(pid)] = (int(parent), int(rss_kib), _seconds(time))
    members = [root] if root in rows else []
    for member in members:  # grows while it is walked: breadth first
        members.extend(pid for pid, (parent, _, _) in rows.items() if parent == member)
    return ProcessStats(
        pids=tuple(members),
        cpu_seconds=sum(rows[pid][2] for pid in members),
        rss_bytes=sum(rows[pid][1] for pid in members) * 1024,
    )


def _seconds(time: str) -> float:
    """`[[DD-]HH:]MM:SS[.ss]` as ps prints it."""
    days, _, clock = time.rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + (int(days) * 86_400 if days else 0)
