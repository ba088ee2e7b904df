# SPDX-License-Identifier: Apache-2.0
"""Keys hashed by us and by the Java client go to the same partition."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from headrace.client.partitioning.partitioners import hash_partition

pytestmark = pytest.mark.compat_jvm

SOURCE = Path(__file__).parent / "java" / "PartitionOfKeys.java"
PARTITION_COUNTS = (1, 2, 3, 12, 1000)


@pytest.mark.row("D4")
def test_100_000_random_keys_go_where_the_java_client_sends_them(java_source: Callable[..., str]) -> None:
    random = Random(4)
    keys = [random.randbytes(random.randrange(40)) for _ in range(100_000)]
    counts = [str(count) for count in PARTITION_COUNTS]
    printed = java_source(SOURCE, *counts, stdin="".join(f"{key.hex()}\n" for key in keys))
    java = [tuple(map(int, line.split())) for line in printed.splitlines()]
    ours = [tuple(hash_partition(key, count) for count in PARTITION_COUNTS) for key in keys]
    assert len(java) == len(keys)
    assert java == ours
