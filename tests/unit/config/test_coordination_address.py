# SPDX-License-Identifier: Apache-2.0
"""The address of the coordination store is read as written, or refused with what is wrong in it."""

from __future__ import annotations

import asyncio
import builtins
import sys

import pytest

from headrace.config.coordination_address import SqliteAddress, ZooKeeperAddress, parse_coordination
from headrace.coordination.open_store import open_store
from headrace.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("sqlite", SqliteAddress()),
        ("sqlite:/var/lib/c", SqliteAddress(directory="/var/lib/c")),
        ("sqlite:C:/c", SqliteAddress(directory="C:/c")),
        ("zk://h1", ZooKeeperAddress(hosts="h1:2181", root="/headrace")),
        ("zk://h1:1,h2:2/", ZooKeeperAddress(hosts="h1:1,h2:2", root="/headrace")),
        ("zk://h1:1/a/b/", ZooKeeperAddress(hosts="h1:1", root="/a/b")),
        ("zk://[::1]:7,[::2]/a", ZooKeeperAddress(hosts="[::1]:7,[::2]:2181", root="/a")),
    ],
)
def test_every_form_is_read(text, address):
    assert parse_coordination(text) == address


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be sqlite, sqlite:DIRECTORY or zk://"),
        ("etcd://h1", "must be sqlite"),
        ("sqlite:", "names no directory"),
        ("sqlite://host/x", "names no directory"),
        ("zk://", "'' is not HOST:PORT"),
        ("zk:///a", "'' is not HOST:PORT"),
        ("zk://h1:2181,,h3", "'' is not HOST:PORT"),
        ("zk://h1:zk", "'h1:zk' has no port between 1 and 65535"),
        ("zk://h1:70000/a", "no port between"),
        ("zk://h 1:7/a", "is not HOST:PORT"),
        ("zk://h1:7/a//b", "the path '/a//b' may hold"),
        ("zk://h1:7/../b", "the path"),
    ],
)
def test_unknown_coordination_addresses_are_refused(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_coordination(text)
    assert message in str(caught.value)
    assert repr(text) in str(caught.value)


async def _open_without_kazoo(tmp_path):
    address = parse_coordination("zk://h1:7/a")
    await open_store(None, address, tmp_path)


def test_zookeeper_without_its_package_names_what_to_install(tmp_path, monkeypatch):
    for name in [each for each in sys.modules if each.startswith(("kazoo", "headrace.coordination.zoo"))]:
        monkeypatch.delitem(sys.modules, name)
    real_import = builtins.__import__

    def without_kazoo(name, *args, **kwargs):
        if name.partition(".")[0] == "kazoo":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_kazoo)
    with pytest.raises(ConfigError, match=r"pip install 'headrace\[zookeeper\]'"):
        asyncio.run(_open_without_kazoo(tmp_path))
