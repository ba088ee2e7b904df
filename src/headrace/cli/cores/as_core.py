# SPDX-License-Identifier: Apache-2.0
"""The side of a core: `headrace serve --as-core`, which only the supervisor of cores starts.

Standard input is a pipe from the supervisor. Read next: run.py, headrace/cluster/cores/engine.py.
"""

from __future__ import annotations

import os
import signal
import threading

_STDIN = 0
_PREFIX = "headrace.metrics."


def endpoint_settings() -> dict[str, str]:
    """Of the core's own HTTP endpoint, with the token that the supervisor sent; operators reach its own."""
    return {
        _PREFIX + "host": "127.0.0.1",
        _PREFIX + "port": "0",
        _PREFIX + "token": _read_line(),
        _PREFIX + "token.file": "",
        _PREFIX + "security.protocol": "PLAINTEXT",
        _PREFIX + "ssl.keystore.location": "",
        _PREFIX + "ssl.key.password": "",
        _PREFIX + "ssl.truststore.location": "",
        _PREFIX + "ssl.client.auth": "none",
    }


def stop_with_supervisor() -> None:
    """Stops this process cleanly when the supervisor has ended, however it did."""
    threading.Thread(target=_await_end, name="supervisor", daemon=True).start()


def _read_line() -> str:
    """Unbuffered: what follows is for the thread."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(_STDIN, 1)):
        line += byte
    return line.decode().strip()


def _await_end() -> None:
    while os.read(_STDIN, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
