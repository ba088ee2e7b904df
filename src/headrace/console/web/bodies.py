# SPDX-License-Identifier: Apache-2.0
"""Reads the body and the parameters of a request, within limits of size and time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request

from headrace.console.web.answers import JSON, Refused

MOST_BYTES = 1 << 20
DEADLINE_S = 10.0
_MOST_PARAMETERS = 32
_LONGEST_PARAMETER = 8192


async def read_object(request: Request) -> Mapping[str, Any]:
    """The JSON object in the body; an empty body is an empty object."""
    data = await _read(request)
    if not data:
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise Refused(415, "the body is not JSON", f"send it with Content-Type: {JSON}")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not valid JSON", "send one JSON object") from None
    if not isinstance(document, dict):
        raise Refused(400, "the body is not a JSON object", "send one JSON object")
    return document


async def _read(request: Request) -> bytes:
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal() or len(declared) > 18 or int(declared) > MOST_BYTES:
        raise _too_large()
    data = bytearray()
    try:
        async with asyncio.timeout(DEADLINE_S):
            async for chunk in request.stream():
                data += chunk
                if len(data) > MOST_BYTES:
                    raise _too_large()
    except TimeoutError:
        raise Refused(
            408, f"the body did not arrive within {DEADLINE_S:g} s", "send it again at once"
        ) from None
    except ClientDisconnect:
        raise Refused(400, "the body ended early") from None
    return bytes(data)


def _too_large() -> Refused:
    return Refused(413, f"the body has more than {MOST_BYTES} bytes", "send less at a time")


def read_parameters(request: Request) -> dict[str, str]:
    """Of the query; the last one counts where one is repeated."""
    pairs = request.query_params.multi_items()
    if len(pairs) > _MOST_PARAMETERS or any(len(value) > _LONGEST_PARAMETER for _, value in pairs):
        raise Refused(400, "the address has too many or too long parameters", "shorten it")
    return dict(pairs)
