# SPDX-License-Identifier: Apache-2.0
"""Settings shared by all confluent-kafka clients: producers, consumers and admin clients of tools."""

from __future__ import annotations

import logging
from typing import Any

from headrace.client.cluster import Cluster, as_cluster

CLIENT_ID = "headrace"

# librdkafka logs to stderr by default; errors that matter are raised as ClientError.
_LOGGER = logging.getLogger("headrace.librdkafka")
_LOGGER.addHandler(logging.NullHandler())
_LOGGER.propagate = False


def client_settings(target: str | Cluster) -> dict[str, Any]:
    """They may hold passwords: never print them."""
    cluster = as_cluster(target)
    return {
        **cluster.security.librdkafka(),
        "bootstrap.servers": cluster.bootstrap,
        "client.id": cluster.client_id or CLIENT_ID,
        "logger": _LOGGER,
        "log_level": 0,
        "socket.timeout.ms": cluster.request_timeout_ms or 15_000,
        "reconnect.backoff.max.ms": 1_000,
    }
