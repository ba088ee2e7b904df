# SPDX-License-Identifier: Apache-2.0
"""Settings of topics and nodes as brokers tell them, with many topics in one request.

Documentation comes from the broker, else from Headrace's own tables. Read next: configs.py, clients.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.client.kafka_errors import code_error
from headrace.client.network_client import NetworkClient
from headrace.config.node_settings import NODE_SETTINGS
from headrace.config.topic_settings import TOPIC_SETTINGS
from headrace.errors import ErrorCode
from headrace.wire.api_key import ApiKey

_TOPIC, _NODE = 2, 4
_TYPES = ("unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password")
_SOURCES = ("unknown", "topic", "node", "cluster", "file", "default")
_DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    name: str
    value: str | None
    """None where it is secret."""
    source: str
    """topic, node, cluster (set for all nodes), file or default."""
    read_only: bool
    sensitive: bool
    kind: str
    doc: str | None

    @property
    def changed(self) -> bool:
        return self.source != _DEFAULT


async def topic_settings(network: NetworkClient, names: Sequence[str]) -> dict[str, list[Setting]]:
    """By topic; those that are gone or not permitted are missing. One name: ClientError says why."""
    reply = await network.call_any(ApiKey.DESCRIBE_CONFIGS, _fields(_TOPIC, names))
    if len(names) == 1:
        _check(reply.results[0], names[0], "topic")
    return {
        str(result.resource_name): [_setting(entry, TOPIC_SETTINGS) for entry in result.configs]
        for result in reply.results
        if int(result.error_code) == 0
    }


async def node_settings(
    network: NetworkClient, node_id: int, keys: Sequence[str] | None = None
) -> list[Setting]:
    """From the node itself: only it knows its file. `keys`: only these."""
    await network.topics([])  # the addresses of the nodes
    connection = await network.connection(node_id)
    reply = await connection.call(ApiKey.DESCRIBE_CONFIGS, _fields(_NODE, [str(node_id)], keys))
    _check(reply.results[0], str(node_id), "node")
    return [_setting(entry, NODE_SETTINGS) for entry in reply.results[0].configs]


def _fields(kind: int, names: Sequence[str], keys: Sequence[str] | None = None) -> dict[str, Any]:
    return {
        "resources": [
            {
                "resource_type": kind,
                "resource_name": name,
                "configuration_keys": None if keys is None else list(keys),
            }
            for name in names
        ],
        "include_synonyms": False,
        "include_documentation": keys is None and len(names) == 1,
    }


def _check(result: Any, name: str, kind: str) -> None:
    code = ErrorCode(int(result.error_code))
    if code is ErrorCode.unknown_topic_or_partition:
        raise code_error("UNKNOWN_TOPIC_OR_PART", name=name, kind=kind)
    if code is not ErrorCode.none:
        raise code_error(code.name.upper(), name=name, kind=kind, text=result.error_message)


def _setting(entry: Any, known: Any) -> Setting:
    name = str(entry.name)
    doc = getattr(entry, "documentation", None) or (known[name].doc if name in known else None)
    return Setting(
        name=name,
        value=None if entry.is_sensitive else entry.value,
        source=_named(_SOURCES, entry.config_source),
        read_only=bool(entry.read_only),
        sensitive=bool(entry.is_sensitive),
        kind=_named(_TYPES, getattr(entry, "config_type", 0)),
        doc=doc,
    )


def _named(names: Sequence[str], number: Any) -> str:
    return names[int(number)] if 0 <= int(number) < len(names) else names[0]
