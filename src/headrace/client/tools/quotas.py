# SPDX-License-Identifier: Apache-2.0
"""Reads and alters client quotas, on any Kafka. Blocking, for tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.tools.brokers import Brokers, run
from headrace.client.tools.reassignments import check
from headrace.client_quotas import CLIENT_ID, DEFAULT, IP, USER, QuotaEntity, Quotas
from headrace.wire.api_key import ApiKey

_EXACT, _DEFAULT_NAME = 0, 1


def describe_quotas(cluster: str | Cluster, entity: QuotaEntity | None = None) -> Quotas:
    """Of all entities, or of exactly one."""
    components = [] if entity is None else [_component(kind, name) for kind, name in entity.items()]
    fields = {"components": components, "strict": entity is not None}

    async def ask() -> Quotas:
        async with Brokers(cluster) as brokers:
            reply = await brokers.call_any(ApiKey.DESCRIBE_CLIENT_QUOTAS, fields)
        check(reply, "the list of quotas")
        return {
            _entity(entry.entity): {str(each.key): float(each.value) for each in entry.values}
            for entry in reply.entries or ()
        }

    return run(ask())


def alter_quotas(
    cluster: str | Cluster, entity: QuotaEntity, values: Mapping[str, float], remove: Iterable[str] = ()
) -> None:
    operations = [{"key": key, "value": value, "remove": False} for key, value in values.items()]
    operations += [{"key": key, "value": 0.0, "remove": True} for key in remove]
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": operations,
    }

    async def ask() -> None:
        async with Brokers(cluster) as brokers:
            fields = {"entries": [entry], "validate_only": False}
            reply = await brokers.call_any(ApiKey.ALTER_CLIENT_QUOTAS, fields)
        for each in reply.entries:
            check(each, f"quotas of {entity}")

    run(ask())


def _component(kind: str, name: str | None) -> dict[str, Any]:
    return {"entity_type": kind, "match_type": _DEFAULT_NAME if name is None else _EXACT, "match": name}


def _entity(parts: Any) -> QuotaEntity:
    names = {str(part.entity_type): part.entity_name or DEFAULT for part in parts}
    return QuotaEntity(names.get(USER), names.get(CLIENT_ID), names.get(IP))
