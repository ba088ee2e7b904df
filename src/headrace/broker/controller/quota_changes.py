# SPDX-License-Identifier: Apache-2.0
"""Alters client quotas on the controller: checks entities and values by Kafka's rules, then writes them.

Read next: handlers/quotas.py (the API), coordination/cluster_metadata.py (the write).
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping, Sequence

from headrace.broker.controller.controller import until_unchanged
from headrace.client_quotas import (
    CLIENT_ID,
    CLIENT_QUOTAS,
    DEFAULT,
    ENTITY_TYPES,
    IP,
    IP_QUOTAS,
    USER,
    WHOLE_NUMBERS,
    QuotaEntity,
)
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.coordination.documents import quotas_key
from headrace.coordination.store import is_key
from headrace.errors import ApiError
from headrace.wire.error_codes import ErrorCode

MOST_ENTITIES = 100_000
"""With quotas of their own: every node keeps all of them in memory."""


class QuotaChanges:
    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster

    async def alter(
        self, entity: QuotaEntity, changes: Mapping[str, float | None], *, validate_only: bool
    ) -> None:
        """None removes a quota. Raises ApiError; then nothing is altered."""
        check_values(entity, changes)

        async def attempt() -> None:
            all_quotas = self._cluster.view.client_quotas
            present = all_quotas.get(entity, {})
            merged = {**present, **changes}
            altered = {name: value for name, value in merged.items() if value is not None}
            if altered and not present and len(all_quotas) >= MOST_ENTITIES:
                raise _invalid(f"{MOST_ENTITIES} entities have quotas; remove some, or use defaults")
            if not validate_only and altered != present:
                await self._cluster.alter_client_quotas(entity, altered)

        await until_unchanged(attempt)


def read_entity(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """From entity types and names; None is the default. Raises ApiError."""
    names: dict[str, str] = {}
    for kind, name in parts:
        if kind in names:
            raise _invalid(f"Invalid client quota entity, duplicate entity entry {kind}")
        if kind not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        names[kind] = DEFAULT if name is None else name
    if not names or (IP in names and len(names) > 1):
        raise _invalid("Invalid empty client quota entity")
    entity = QuotaEntity(names.get(USER), names.get(CLIENT_ID), _address(names.get(IP)))
    if not is_key(quotas_key(entity)):
        raise _invalid(f"The name of {entity} is too long to have quotas.")
    return entity


def check_values(entity: QuotaEntity, changes: Mapping[str, float | None]) -> None:
    known = CLIENT_QUOTAS if entity.ip is None else IP_QUOTAS
    for name, value in changes.items():
        if name not in known:
            raise _invalid(f"Invalid configuration key {name}; there are {', '.join(known)}")
        if value is None:
            continue
        if not (math.isfinite(value) and value > 0):
            raise _invalid(f"Quota {name} must be greater than 0")
        if name in WHOLE_NUMBERS and not value.is_integer():
            raise _invalid(f"Configuration {name} must be a Long value")


def _address(ip: str | None) -> str | None:
    """As it is compared with the address of a connection. Names of hosts are not looked up."""
    if not ip:
        return ip
    try:
        return str(ipaddress.ip_address(ip))
    except ValueError:
        raise _invalid(f"{ip} is not a valid IP.") from None


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.invalid_request, message)
