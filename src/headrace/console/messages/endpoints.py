# SPDX-License-Identifier: Apache-2.0
"""What the messages page may call. Read next: page.py, tail.py, produce.py, download.py."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from headrace.console.endpoint import Endpoint
from headrace.console.messages.avro import RegistryAvro, from_environment
from headrace.console.messages.page import MOST_RECORDS, read_page
from headrace.console.messages.query import parse_query
from headrace.console.views.view import Document, Params, Source


@cache
def _avro() -> RegistryAvro:
    return from_environment()


async def _page(source: Source, params: Params, body: Mapping[str, Any]) -> Document:
    return await read_page(source, parse_query(params, most=MOST_RECORDS), _avro())


ENDPOINTS: tuple[Endpoint, ...] = (Endpoint(method="GET", path="/messages", handle=_page),)
