# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from headrace.coordination.hosts import NETWORK_FILE_SYSTEMS, mounted_type

MOUNTS = r"""/dev/vda / ext4 rw 0 0
proc /proc proc rw 0 0
server:/export /home nfs4 rw 0 0
/dev/vdb /home/local xfs rw 0 0
server:/b /mnt/with\040blank cifs rw 0 0
first /twice ext4 rw 0 0
second /twice nfs rw 0 0
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/var/lib/headrace", "ext4"),
        ("/home", "nfs4"),
        ("/home/me/data", "nfs4"),
        ("/home/local/data", "xfs"),
        ("/homely", "ext4"),
        ("/mnt/with blank/data", "cifs"),
        ("/twice/data", "nfs"),
    ],
)
def test_the_deepest_and_latest_mount_decides(path: str, kind: str) -> None:
    assert mounted_type(MOUNTS, path) == kind


def test_local_file_systems_are_not_network_file_systems() -> None:
    assert not NETWORK_FILE_SYSTEMS & {"ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "apfs"}


def test_without_mounts_there_is_no_type() -> None:
    assert mounted_type("", "/data") is None
