# SPDX-License-Identifier: Apache-2.0
"""A host of a Lan whose packets are delayed and lost, where the kernel has no netem.

What the host sends is delayed and lost, what it receives is not: as by `tc qdisc add dev eth0 root netem` on
the host. A process forwards Ethernet frames between two TAP devices, so that real TCP meets it. Needs root.
`python -m tests.harness.live.slow_link NEAR FAR` is that process; it reads "DELAY_MS LOSS" from its input.
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections import deque

from tests.harness.live.lan import Lan

_TUN = "/dev/net/tun"
_SET_INTERFACE = 0x400454CA
_TAP_WITHOUT_HEADER = 0x1002
_FRAME = 1 << 16
_QUEUE = 10_000
"""Frames under way; netem drops beyond 1,000 by default."""


class SlowLink:
    """Use as a context manager, inside that of its Lan and before anything runs on the host."""

    def __init__(self, lan: Lan, host: str) -> None:
        self._lan = lan
        self._host = host

    def __enter__(self) -> SlowLink:
        near, far = (f"hr{os.getpid()}{end}" for end in ("n", "f"))
        command = [sys.executable, "-m", "tests.harness.live.slow_link", near, far]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            raise AssertionError("the devices of a slow link could not be made")
        self._lan.replace_cable(self._host, near, far)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def set(self, delay_ms: float, loss: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{delay_ms} {loss}\n")
        self._process.stdin.flush()


def _tap(name: str) -> int:
    file = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, _SET_INTERFACE, struct.pack("16sH22x", name.encode(), _TAP_WITHOUT_HEADER))
    return file


def forward(near: str, far: str) -> None:
    """Until its input ends."""
    near_file, far_file = _tap(near), _tap(far)
    delay_s, loss, under_way = 0.0, 0.0, deque[tuple[float, bytes]]()
    print("ready", flush=True)
    while True:
        left = max(under_way[0][0] - time.monotonic(), 0.0) if under_way else None
        readable, _, _ = select.select([near_file, far_file, sys.stdin], [], [], left)
        if sys.stdin in readable:
            line = sys.stdin.readline()
            if not line:
                return
            delay_ms, loss = map(float, line.split())
            delay_s = delay_ms / 1000
        for frame in _frames(near_file, near_file in readable):
            _write(far_file, frame)
        for frame in _frames(far_file, far_file in readable):
            if len(under_way) < _QUEUE and random.random() >= loss:
                under_way.append((time.monotonic() + delay_s, frame))
        now = time.monotonic()
        while under_way and under_way[0][0] <= now:
            _write(near_file, under_way.popleft()[1])


def _frames(file: int, readable: bool) -> list[bytes]:
    frames: list[bytes] = []
    while readable and len(frames) < _QUEUE:
        try:
            frames.append(os.read(file, _FRAME))
        except OSError:  # nothing is left, or the device is not up yet
            break
    return frames


def _write(file: int, frame: bytes) -> None:
    try:
        os.write(file, frame)
    except OSError:  # a full queue loses the frame, as a switch does
        return


if __name__ == "__main__":
    forward(*sys.argv[1:])
