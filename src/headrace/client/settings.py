"""The librdkafka settings that every client of ours starts from.

One place, so that TLS and SASL can come in here for all of them later.
"""

from __future__ import annotations

import logging
from typing import Any

CLIENT_ID = "headrace"

# librdkafka writes to stderr by itself; what matters reaches us as errors, with better words.
_LOGGER = logging.getLogger("headrace.librdkafka")
_LOGGER.addHandler(logging.NullHandler())
_LOGGER.propagate = False


def client_settings(bootstrap: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "client.id": CLIENT_ID,
        "logger": _LOGGER,
        "log_level": 0,
        "socket.timeout.ms": 15_000,
        "reconnect.backoff.max.ms": 1_000,
    }
