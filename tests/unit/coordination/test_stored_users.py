# SPDX-License-Identifier: Apache-2.0
"""Users in a store without a node: how they are written, and that names of any kind survive."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.config.coordination_address import SqliteAddress
from headrace.coordination import documents
from headrace.coordination.stored_users import StoredUsers, open_users
from headrace.coordination.zookeeper_security import ZooKeeperSecurity
from headrace.errors import ConfigError
from headrace.realworld import RealWorld
from headrace.scram_credential import make_credential

ANN = {"SCRAM-SHA-256": make_credential("sha256", b"secret", b"salt", 4096)}

OPEN = ZooKeeperSecurity()


@pytest.mark.parametrize("name", ["ann", "a/b", "..", "x_y.z~", "Jürgen", "o=brien, jr", "_", " "])
def test_a_name_makes_a_key_and_comes_back(name: str) -> None:
    key = documents.user_key(name)
    assert documents.user_of_key(key) == name
    assert documents.decode_user(key, documents.encode_user(ANN)) == ANN
    assert b"secret" not in documents.encode_user(ANN)


def test_users_are_added_changed_and_removed(tmp_path: Path) -> None:
    async def change(users: StoredUsers) -> None:
        await users.change("ann", lambda present: {} if present else ANN)

    async def main() -> list[dict[str, object]]:
        seen = []
        for _ in range(3):
            async with open_users(RealWorld(), SqliteAddress(), tmp_path / "store", OPEN) as users:
                seen.append(dict(users.all()))
                await change(users)
        return seen

    assert asyncio.run(main()) == [{}, {"ann": ANN}, {}]


def test_two_changes_at_once_are_made_one_after_the_other(tmp_path: Path) -> None:
    """The second one decides again on what the first has written."""

    async def add(users: StoredUsers, name: str) -> None:
        await users.change("ann", lambda present: {**(present or {}), name: ANN["SCRAM-SHA-256"]})

    async def main() -> dict[str, object]:
        first = open_users(RealWorld(), SqliteAddress(), tmp_path, OPEN)
        second = open_users(RealWorld(), SqliteAddress(), tmp_path, OPEN)
        async with first as one, second as two:
            await asyncio.gather(add(one, "A"), add(two, "B"))
        async with open_users(RealWorld(), SqliteAddress(), tmp_path, OPEN) as users:
            return dict(users.all()["ann"])

    assert set(asyncio.run(main())) == {"A", "B"}


@pytest.mark.parametrize("name", ["", "n" * 256, "ü" * 50])
def test_a_name_that_makes_no_key_is_refused(tmp_path: Path, name: str) -> None:
    async def main() -> None:
        async with open_users(RealWorld(), SqliteAddress(), tmp_path, OPEN) as users:
            await users.change(name, lambda present: ANN)

    with pytest.raises(ConfigError, match="cannot be the name of a user"):
        asyncio.run(main())
