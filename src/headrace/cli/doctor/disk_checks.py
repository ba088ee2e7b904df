# SPDX-License-Identifier: Apache-2.0
"""Checks of `headrace doctor` on the data directory: space, kind of file system, time of an fsync."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.cli.doctor.finding import Finding
from headrace.cli.output import human_bytes

_MOUNTS = Path("/proc/self/mounts")
_GIB = 1 << 30
_LITTLE, _TOO_LITTLE = 5 * _GIB, _GIB // 4
_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")
_OF_A_CONTAINER = ("overlay", "aufs")
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "ceph", "glusterfs", "virtiofs")
_ATTEMPTS, _BLOCK = 15, b"\0" * 4096
_SLOW_MS = 20.0


def check_disk(directory: Path) -> list[Finding]:
    """The checks on an existing directory, or on the nearest one above it that exists."""
    place = existing_parent(directory)
    try:
        fsync = check_fsync(place)
    except OSError as error:
        return [
            Finding(
                check="data directory",
                status="fail",
                found=f"{directory}: a file cannot be written in {place} ({error.strerror})",
                fix="give another directory with --data, or change the owner of this one",
            )
        ]
    found = f"{directory}" + ("" if place == directory else " (made at the first start)")
    return [
        Finding(check="data directory", found=found),
        check_space(place),
        check_file_system(place),
        fsync,
    ]


def existing_parent(directory: Path) -> Path:
    return next(each for each in (directory, *directory.absolute().parents) if each.is_dir())


def check_space(place: Path, usage: Callable[[Path], tuple[int, int, int]] = shutil.disk_usage) -> Finding:
    total, _, free = usage(place)
    found = f"{human_bytes(free)} of {human_bytes(total)} free"
    if free >= _LITTLE:
        return Finding(check="disk space", found=found)
    return Finding(
        check="disk space",
        status="fail" if free < _TOO_LITTLE else "warn",
        found=found,
        fix="free some, choose another disk with --data, or keep less (log.retention.bytes)",
    )


def check_file_system(place: Path, kind: str | None = None) -> Finding:
    kind = file_system(place) if kind is None else kind
    if kind in _IN_MEMORY:
        fix = "choose a directory on a disk with --data"
        return Finding(check="file system", status="warn", found=f"{kind}: lost at a reboot", fix=fix)
    if kind in _OF_A_CONTAINER:
        fix = "mount a volume and name it with --data"
        return Finding(check="file system", status="warn", found=f"{kind}: lost with the container", fix=fix)
    if kind in _REMOTE:
        fix = "choose a local disk with --data: locks and fsync of network file systems cannot be relied on"
        return Finding(check="file system", status="warn", found=f"{kind}: not a local disk", fix=fix)
    return Finding(check="file system", found=kind or "unknown on this platform")


def file_system(place: Path, mounts: Path = _MOUNTS) -> str:
    """The kind of the mount with the longest matching path; empty where the platform does not say."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return _kind_of_mount(place.resolve(), lines)


def _kind_of_mount(place: Path, lines: Sequence[str]) -> str:
    found = (len(Path("/").parts), "")
    for fields in (line.split(" ") for line in lines):
        if len(fields) < 3:
            continue
        mounted = Path(fields[1].replace("\\040", " "))
        if place.is_relative_to(mounted) and len(mounted.parts) >= found[0]:
            found = (len(mounted.parts), fields[2])
    return found[1]


def check_fsync(place: Path, measure: Callable[[Path], list[float]] | None = None) -> Finding:
    """How long acks=all waits for the disk (headrace.flush.default=ack)."""
    times_ms = sorted((measure or _fsync_times_ms)(place))
    median, slowest = statistics.median(times_ms), times_ms[-1]
    found = f"median {median:.1f} ms, slowest of {len(times_ms)} {slowest:.1f} ms"
    if median <= _SLOW_MS:
        return Finding(check="fsync", found=found)
    return Finding(
        check="fsync",
        status="warn",
        found=f"{found}: each acknowledgement with acks=all waits for it",
        fix="use a faster disk, or flush less often: headrace serve --set headrace.flush.default=interval",
    )


def _fsync_times_ms(place: Path) -> list[float]:
    times_ms = []
    with tempfile.TemporaryFile(dir=place, prefix=".headrace-doctor-", buffering=0) as file:
        for _ in range(_ATTEMPTS):
            file.write(_BLOCK)
            started = time.perf_counter()
            os.fsync(file.fileno())
            times_ms.append((time.perf_counter() - started) * 1000)
    return times_ms
