# SPDX-License-Identifier: Apache-2.0
"""Names of renamed log directories: never longer than a file system takes, and still told apart."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from headrace.log.directory_names import (
    MAX_NAME_BYTES,
    STRAY_MARK,
    KeptLog,
    deleted_name,
    kept_log,
    kept_name,
    partition_in,
    stray_name,
)
from headrace.realworld import RealFiles

LONGEST = "t" * 249
ID = UUID(int=7).hex


def test_short_names_stay_whole() -> None:
    assert deleted_name("orders-3", ID) == f"orders-3.{ID}-delete"
    assert stray_name("orders-3", 17) == "orders-3.17-stray"


@pytest.mark.parametrize("length", range(200, 250))
def test_names_of_every_length_fit_the_file_system(length: int, tmp_path: Path) -> None:
    for index in (0, 9999):
        source = tmp_path / f"{'t' * length}-{index}"
        for target in (deleted_name(source.name, ID), stray_name(source.name, 1_700_000_000_000)):
            assert len(target) <= MAX_NAME_BYTES
            RealFiles().make_directory(source)
            RealFiles().rename(source, tmp_path / target)


def test_partitions_of_one_long_topic_keep_different_names() -> None:
    assert len({deleted_name(f"{LONGEST}-{index}", ID) for index in range(100)}) == 100
    assert len({stray_name(f"{LONGEST}-{index}", 1) for index in range(100)}) == 100


def test_a_shortened_stray_cannot_be_taken_for_another_topic() -> None:
    """`~` is no character of a topic name."""
    assert STRAY_MARK in stray_name(f"{'a-5' * 83}-0", 1_700_000_000_000)


@pytest.mark.parametrize(
    ("name", "partition", "with_strays"),
    [
        ("orders-0", ("orders", 0), ("orders", 0)),
        ("a.b-c_d-12", ("a.b-c_d", 12), ("a.b-c_d", 12)),
        ("orders-0.1700000000000-stray", None, ("orders", 0)),
        ("orders-0.1700000000000-kept", None, None),
        ("orders-01", None, None),
        ("orders", None, None),
        ("orders-x", None, None),
    ],
)
def test_the_partition_is_read_from_the_name_of_its_directory(
    name: str, partition: tuple[str, int] | None, with_strays: tuple[str, int] | None
) -> None:
    assert partition_in(name) == partition
    assert partition_in(name, strays=True) == with_strays


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("orders-0.17-kept", KeptLog(0, False, 17)),
        ("a.b-c_d-12.17-kept", KeptLog(12, False, 17)),
        ("orders-0.15-stray.17-kept", KeptLog(0, True, 17)),
        (kept_name(f"{LONGEST}-3", 17), KeptLog(3, False, 17)),
        ("orders-0.17-stray", None),
        ("orders-0", None),
        ("orders-01.17-kept", None),
        ("orders-0-kept", None),
    ],
)
def test_a_log_that_was_kept_is_known_by_the_name_of_its_directory(name: str, found: KeptLog | None) -> None:
    assert kept_log(name) == found
