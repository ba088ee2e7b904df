# SPDX-License-Identifier: Apache-2.0
"""Facts about this host for the SQLite store: the boot id, and whether a directory is local (R10).

Reads /proc through World files; None where there is none (macOS, Windows, simulation).
Read next: sqlite.py.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from headrace.world import Files

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MOUNTS = Path("/proc/mounts")
_PAGE = 64 * 1024

NETWORK_FILE_SYSTEMS = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "glusterfs", "gpfs", "lustre", "ncpfs"),
        *("fuse.ceph", "fuse.glusterfs", "fuse.s3fs", "fuse.smbnetfs", "fuse.sshfs"),
        *("nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs"),
    }
)


def boot_id(files: Files) -> str | None:
    """An id that changes with each boot of the machine."""
    text = _read_proc(files, _BOOT_ID)
    return text.strip() if text else None


def network_file_system(files: Files, directory: Path) -> str | None:
    """The type of the network file system the directory is on; None for a local one."""
    mounts = _read_proc(files, _MOUNTS)
    if mounts is None:
        return None
    kind = mounted_type(mounts, os.path.realpath(directory))
    return kind if kind in NETWORK_FILE_SYSTEMS else None


def mounted_type(mounts: str, path: str) -> str | None:
    """The file system type of the deepest mount point above `path`; among equals, the last mounted."""
    best, kind = -1, None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        mount_point = PurePosixPath(_unescape(fields[1]))
        if PurePosixPath(path).is_relative_to(mount_point) and len(mount_point.parts) >= best:
            best, kind = len(mount_point.parts), fields[2]
    return kind


def _unescape(field: str) -> str:
    for code, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        field = field.replace(code, character)
    return field


def _read_proc(files: Files, path: Path) -> str | None:
    """Read to the end: files in /proc report size 0."""
    try:
        file = files.open(path, "read")
    except OSError:
        return None
    try:
        content = bytearray()
        while chunk := file.pread(_PAGE, len(content)):
            content += chunk
        return content.decode(errors="replace")
    finally:
        file.close()
