# SPDX-License-Identifier: Apache-2.0
"""A small network on this machine: a namespace for each host, on one bridge; links can be cut one way.

What goes over a cut link is sent to an address that nobody has: it vanishes without a word, as on a pulled
cable. Needs root and `ip` (iproute2). Knows no broker. Read next: network_cuts.py (which links to cut).
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

OUTSIDE = "outside"
"""The machine itself, where the tests and their clients run."""
_NOBODY = "02:00:00:00:00:01"
_NETWORKS = tuple(f"10.213.{third}" for third in range(1, 255))
_numbers = itertools.count()


class LanFailed(AssertionError):
    """A command of `ip` failed; carries what it said."""


class Lan:
    """Use as a context manager: namespaces and bridge are gone at its end, and what ran there must be."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._tag = f"hr{os.getpid()}-{next(_numbers)}"
        self._hosts = list(hosts)
        self._network = ""
        self._cuts: set[tuple[str, str]] = set()

    def __enter__(self) -> Lan:
        _sweep()
        self._network = _free_network()
        try:
            _ip("link", "add", self._tag, "type", "bridge")
            _ip("addr", "add", f"{self.address(OUTSIDE)}/24", "dev", self._tag)
            _ip("link", "set", self._tag, "up")
            for place, host in enumerate(self._hosts):
                self._add(place, host)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for host in self._hosts:
            _ip("netns", "del", self._namespace(host), check=False)
        _ip("link", "del", self._tag, check=False)

    def address(self, host: str) -> str:
        return f"{self._network}.{1 if host == OUTSIDE else self._hosts.index(host) + 2}"

    def command(self, host: str, command: Sequence[str]) -> tuple[str, ...]:
        """The same command on this host."""
        return ("ip", "netns", "exec", self._namespace(host), *command)

    def replace_cable(self, host: str, near: str, far: str) -> None:
        """Connects the host by two devices of somebody who forwards between them: `near` joins the bridge,
        `far` becomes the host's own."""
        namespace = self._namespace(host)
        _ip("-n", namespace, "link", "del", "eth0")
        _ip("link", "set", near, "master", self._tag, "up")
        _ip("link", "set", far, "netns", namespace)
        _ip("-n", namespace, "link", "set", far, "name", "eth0")
        _ip("-n", namespace, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        _ip("-n", namespace, "link", "set", "eth0", "up")

    # -- links ---------------------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """What `source` sends to `target` is lost from now on; the other way is not touched."""
        entry = ("neigh", "replace", self.address(target), "lladdr", _NOBODY, *self._device(source))
        _ip(*self._inside(source), *entry, "nud", "permanent")
        self._cuts.add((source, target))

    def heal(self, source: str, target: str) -> None:
        if (source, target) in self._cuts:
            _ip(*self._inside(source), "neigh", "del", self.address(target), *self._device(source))
            self._cuts.discard((source, target))

    def heal_all(self) -> None:
        for source, target in list(self._cuts):
            self.heal(source, target)

    # -- private -------------------------------------------------------------------------------------------

    def _add(self, place: int, host: str) -> None:
        namespace, cable = self._namespace(host), f"{self._tag}v{place}"
        _ip("netns", "add", namespace)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", cable, "master", self._tag, "up")
        _ip("-n", namespace, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", namespace, "link", "set", device, "up")

    def _namespace(self, host: str) -> str:
        return f"{self._tag}-{host}"

    def _inside(self, host: str) -> tuple[str, ...]:
        return () if host == OUTSIDE else ("-n", self._namespace(host))

    def _device(self, host: str) -> tuple[str, str]:
        return ("dev", self._tag if host == OUTSIDE else "eth0")


def why_lans_are_missing() -> str | None:
    """None when one can be made, else the reason: what a skipped test prints."""
    if shutil.which("ip") is None:
        return "no `ip`: install iproute2"
    try:
        with Lan(["probe"]):
            return None
    except LanFailed as error:
        return f"no network namespaces here, they need root: {error}"


def _ip(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise LanFailed(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _free_network() -> str:
    taken = _ip("-4", "-o", "addr")
    return next(network for network in _NETWORKS if f" {network}." not in taken)


def _sweep() -> None:
    """What tests left behind that were killed."""
    names = re.findall(r"^(hr(\d+)-\d+-\S+)", _ip("netns", "list"), re.MULTILINE)
    bridges = re.findall(r"^\d+: (hr(\d+)-\d+):", _ip("link", "show", "type", "bridge"), re.MULTILINE)
    for kind, found in (("netns", names), ("link", bridges)):
        for name, pid in found:
            if not Path(f"/proc/{pid}").exists():
                _ip(kind, "del", name, check=False)
