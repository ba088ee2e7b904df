# SPDX-License-Identifier: Apache-2.0
"""What the messages page may call. Read next: page.py, tail.py, produce.py, download.py."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from headrace.console.endpoint import Download, Endpoint, Feed
from headrace.console.messages import download
from headrace.console.messages.avro import RegistryAvro, from_environment
from headrace.console.messages.page import MOST_RECORDS, read_page
from headrace.console.messages.produce import produce
from headrace.console.messages.query import parse_query
from headrace.console.messages.tail import tail
from headrace.console.views.view import Document, Params, Source, ViewError


@cache
def _avro() -> RegistryAvro:
    return from_environment()


async def _page(source: Source, params: Params, body: Mapping[str, Any]) -> Document:
    return await read_page(source, parse_query(params, most=MOST_RECORDS), _avro())


async def _tail(source: Source, params: Params, body: Mapping[str, Any]) -> Feed:
    return await tail(source, parse_query(params, most=MOST_RECORDS), _avro())


async def _produce(source: Source, params: Params, body: Mapping[str, Any]) -> Document:
    return await produce(source, body)


async def _download(source: Source, params: Params, body: Mapping[str, Any]) -> Download:
    query = parse_query({"limit": str(download.MOST_RECORDS), **params}, most=download.MOST_RECORDS)
    return await download.download(source, query, params.get("format", ""), _avro())


async def _record(source: Source, params: Params, body: Mapping[str, Any]) -> Download:
    query = parse_query({**params, "from": "offset"}, most=1)
    part = params.get("part", "value")
    if part not in ("key", "value") or query.partitions is None or len(query.partitions) != 1:
        raise ViewError(
            "one record's key or value is asked for",
            next_step="give topic, one number as partitions, offset, and part=key or part=value",
            status=400,
        )
    return await download.download_part(source, query.topic, query.partitions[0], query.value, part)


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(method="GET", path="/messages", handle=_page),
    Endpoint(method="GET", path="/messages/tail", handle=_tail),
    Endpoint(method="GET", path="/messages/download", handle=_download),
    Endpoint(method="GET", path="/messages/record", handle=_record),
    Endpoint(method="POST", path="/messages", handle=_produce),
)
