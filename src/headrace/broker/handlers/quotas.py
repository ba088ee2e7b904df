# SPDX-License-Identifier: Apache-2.0
"""DescribeClientQuotas 0-1, AlterClientQuotas 0-1 (KIP-546).

Every entity of a request is altered or refused by itself. Any node describes; the controller alters.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from headrace.broker.controller.quota_changes import QuotaChanges, read_entity
from headrace.broker.network.request_context import Handler, RequestContext
from headrace.broker.network.yielding import yielding
from headrace.client_quotas import CLIENT_ID, DEFAULT, ENTITY_TYPES, IP, USER, QuotaEntity
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode


class MatchType(IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2


Filter = dict[str, str | None]
"""By entity type: the name, DEFAULT, or None for any entity that has a part of this type."""


class QuotaHandlers:
    def __init__(self, *, cluster: ClusterMetadata) -> None:
        self._cluster = cluster
        self._changes = QuotaChanges(cluster)

    def by_key(self) -> dict[int, Handler]:
        return {
            ApiKey.DESCRIBE_CLIENT_QUOTAS: self.describe,
            ApiKey.ALTER_CLIENT_QUOTAS: self.alter,
        }

    async def describe(self, context: RequestContext, request: Any) -> dict[str, Any]:
        try:
            wanted = _read_filter(request.components)
        except ApiError as refusal:
            return {"error_code": refusal.code, "error_message": refusal.message, "entries": None}
        entries = [
            {"entity": _described(entity), "values": _values(quotas)}
            async for entity, quotas in yielding(list(self._cluster.view.client_quotas.items()))
            if _matches(entity, wanted, strict=request.strict)
        ]
        return {"error_code": ErrorCode.none, "error_message": None, "entries": entries}

    async def alter(self, context: RequestContext, request: Any) -> dict[str, Any]:
        entries = []
        seen: set[QuotaEntity] = set()
        for entry in request.entries:
            parts = [(part.entity_type, part.entity_name) for part in entry.entity]
            result: dict[str, Any] = {"error_code": ErrorCode.none, "error_message": None}
            try:
                entity = read_entity(parts)
                if entity in seen:
                    raise _invalid(f"Ignoring duplicate entity {entity}")
                seen.add(entity)
                changes = _changes(entry.ops, entity)
                await self._changes.alter(entity, changes, validate_only=request.validate_only)
            except ApiError as refusal:
                result = {"error_code": refusal.code, "error_message": refusal.message}
            entity_fields = [{"entity_type": kind, "entity_name": name} for kind, name in parts]
            entries.append({**result, "entity": entity_fields})
        return {"throttle_time": 0, "entries": entries}


def _changes(operations: Any, entity: QuotaEntity) -> dict[str, float | None]:
    changes: dict[str, float | None] = {}
    for operation in operations:
        if operation.key in changes:
            raise _invalid(f"Duplicate quota key {operation.key} not updating quota for this entity {entity}")
        changes[operation.key] = None if operation.remove else float(operation.value)
    return changes


def _read_filter(components: Any) -> Filter:
    wanted: Filter = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in wanted:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in ENTITY_TYPES:
            raise ApiError(ErrorCode.unsupported_version, f"Unsupported entity type {kind}")
        wanted[kind] = _wanted_name(component)
    if IP in wanted and (USER in wanted or CLIENT_ID in wanted):
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component."
        )
    return wanted


def _wanted_name(component: Any) -> str | None:
    try:
        match_type = MatchType(component.match_type)
    except ValueError:
        raise _invalid(f"Unknown match type {component.match_type}") from None
    if match_type is MatchType.EXACT:
        if component.match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        return str(component.match)
    if component.match is not None:
        name = "MATCH_TYPE_DEFAULT" if match_type is MatchType.DEFAULT else "MATCH_TYPE_SPECIFIED"
        raise _invalid(f"Request specified {name}, but also specified a match string.")
    return DEFAULT if match_type is MatchType.DEFAULT else None


def _matches(entity: QuotaEntity, wanted: Filter, *, strict: bool) -> bool:
    """A strict filter excludes entities with parts that it does not name."""
    parts = {kind: name or DEFAULT for kind, name in entity.items()}
    if strict and parts.keys() != wanted.keys():
        return False
    return all(kind in parts and name in (None, parts[kind]) for kind, name in wanted.items())


def _described(entity: QuotaEntity) -> list[dict[str, Any]]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]


def _values(quotas: Mapping[str, float]) -> list[dict[str, Any]]:
    return [{"key": name, "value": value} for name, value in quotas.items()]


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.invalid_request, message)
