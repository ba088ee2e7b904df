"""ApiVersions 0-4: which versions of which API are served; clients ask first on every connection.

Answered at once from encoded bytes. Gaps: no features are listed. Without transaction.version, producers keep
adding partitions to transactions by request. Read next: wire/api_table.py.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from headrace.broker.metrics import Metrics
from headrace.broker.network.deferred_reply import DeferredHandler, DeferredReply
from headrace.broker.network.request_context import EncodedReply, RequestContext
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS, NODE_APIS
from headrace.wire.error_codes import ErrorCode
from headrace.wire.messages import encode_reply

_SOFTWARE_NAMES_FROM = 3
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")
_MAX_SOFTWARE_NAME_LENGTH = 100


class ApiVersionsHandlers:
    def __init__(self, *, node_listener: str, metrics: Metrics) -> None:
        self._node_listener = node_listener
        self._metrics = metrics

    def deferred_by_key(self) -> dict[int, DeferredHandler]:
        return {ApiKey.API_VERSIONS: self.api_versions}

    def api_versions(self, context: RequestContext, request: Any, reply: DeferredReply) -> None:
        if context.api_version >= _SOFTWARE_NAMES_FROM:
            name, version = request.client_software_name, request.client_software_version
            if not _SOFTWARE_NAME.match(name) or not _SOFTWARE_NAME.match(version):
                self._metrics.request_error(context.api_key, ErrorCode.invalid_request)
                reply.send(encode_reply(*context[:3], {"error_code": ErrorCode.invalid_request}))
                return
            self._metrics.client_seen(name[:_MAX_SOFTWARE_NAME_LENGTH], version[:_MAX_SOFTWARE_NAME_LENGTH])
        versions = _api_versions(context.api_version, context.listener == self._node_listener)
        reply.send(versions.for_request(context.correlation_id))


@cache
def _api_versions(version: int, for_nodes: bool) -> EncodedReply:
    ranges = [
        {"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version}
        for api in sorted(APIS.values(), key=lambda api: api.key)
        if for_nodes or api.key not in NODE_APIS
    ]
    return EncodedReply(encode_reply(ApiKey.API_VERSIONS, version, 0, {"api_keys": ranges}))


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
