# SPDX-License-Identifier: Apache-2.0
"""ApiVersions 0-4: which versions of which API are served; clients ask first on every connection.

Answered at once from encoded bytes. The only feature is transaction.version (docs/decisions/0030): at 2
producers use the protocol of KIP-890, at 0 the APIs of transactions are not listed, so that no client tries.
Read next: wire/api_table.py, coordination/transaction_version.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any

from headrace.broker.metrics import Metrics
from headrace.broker.network.deferred_reply import DeferredHandler, DeferredReply
from headrace.broker.network.request_context import EncodedReply, RequestContext
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.coordination.documents import TRANSACTION_VERSION
from headrace.coordination.transaction_version import SERVED
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS, NODE_APIS, Api
from headrace.wire.error_codes import ErrorCode
from headrace.wire.messages import encode_reply

_SOFTWARE_NAMES_FROM = 3
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")
_MAX_SOFTWARE_NAME_LENGTH = 100
_FEATURES_FROM_0_SINCE = 4
"""Clients that ask in an earlier version may not be able to read a feature with level 0 (KAFKA-17492)."""
_TRANSACTION_APIS = frozenset(
    {ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT}
)
_TRANSACTION_APIS_OF_CLIENTS = _TRANSACTION_APIS - {ApiKey.ADD_PARTITIONS_TO_TXN}
"""A node asks for versions when it connects, and must be able to send the others once the level rises."""


class ApiVersionsHandlers:
    def __init__(self, *, cluster: ClusterMetadata, node_listener: str, metrics: Metrics) -> None:
        self._cluster = cluster
        self._node_listener = node_listener
        self._metrics = metrics

    def deferred_by_key(self) -> dict[int, DeferredHandler]:
        return {ApiKey.API_VERSIONS: self.api_versions}

    def api_versions(self, context: RequestContext, request: Any, reply: DeferredReply) -> None:
        if context.api_version >= _SOFTWARE_NAMES_FROM:
            name, version = request.client_software_name, request.client_software_version
            if not _SOFTWARE_NAME.match(name) or not _SOFTWARE_NAME.match(version):
                self._metrics.request_error(context.api_key, ErrorCode.invalid_request, context.activity)
                reply.send(encode_reply(*context[:3], {"error_code": ErrorCode.invalid_request}))
                return
            if context.activity is not None:
                context.activity.is_software(name, version)
            self._metrics.client_seen(name[:_MAX_SOFTWARE_NAME_LENGTH], version[:_MAX_SOFTWARE_NAME_LENGTH])
        view = self._cluster.view
        versions = _api_versions(
            context.api_version,
            context.listener == self._node_listener,
            view.transaction_version,
            view.finalized_features.epoch,
        )
        reply.send(versions.for_request(context.correlation_id))


@lru_cache(maxsize=32)
def _api_versions(version: int, for_nodes: bool, transaction_version: int, epoch: int) -> EncodedReply:
    apis = advertised(APIS.values(), for_nodes=for_nodes, transaction_version=transaction_version)
    fields: dict[str, Any] = {
        "api_keys": [
            {"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version}
            for api in sorted(apis, key=lambda api: api.key)
        ],
        "finalized_features_epoch": epoch,
    }
    lowest, highest = SERVED
    if version >= _FEATURES_FROM_0_SINCE:
        supported = {"name": TRANSACTION_VERSION, "min_version": lowest, "max_version": highest}
        fields["supported_features"] = [supported]
    if transaction_version > 0:  # as in Apache Kafka: a feature at level 0 is left out
        levels = {"max_version_level": transaction_version, "min_version_level": transaction_version}
        fields["finalized_features"] = [{"name": TRANSACTION_VERSION, **levels}]
    return EncodedReply(encode_reply(ApiKey.API_VERSIONS, version, 0, fields))


def advertised(apis: Iterable[Api], *, for_nodes: bool, transaction_version: int) -> list[Api]:
    hidden = frozenset() if for_nodes else NODE_APIS
    if transaction_version == 0:
        hidden |= _TRANSACTION_APIS_OF_CLIENTS if for_nodes else _TRANSACTION_APIS
    return [api for api in apis if api.key not in hidden]


def unsupported_api_versions(correlation_id: int) -> bytes:
    """Reply to an unsupported ApiVersions version: version 0, with the versions of this API (KIP-511)."""
    return _unsupported_api_versions().for_request(correlation_id)


@cache
def _unsupported_api_versions() -> EncodedReply:
    api = APIS[ApiKey.API_VERSIONS]
    fields = {
        "error_code": ErrorCode.unsupported_version,
        "api_keys": [{"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version}],
    }
    return EncodedReply(encode_reply(ApiKey.API_VERSIONS, 0, 0, fields))
