# SPDX-License-Identifier: Apache-2.0
"""Gets what a tool answers with: a view's document or a part of it, or the answer of a reading endpoint.

Knows no protocol. Read next: answers.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from headrace.console.assistant.answers import Answer
from headrace.console.assistant.catalog import ReadTool
from headrace.console.endpoint import Endpoint
from headrace.console.messages.endpoints import ENDPOINTS
from headrace.console.views.view import Document, Params, Source, ViewError

READING: Mapping[str, Endpoint] = {each.path: each for each in ENDPOINTS if not each.changes}
"""What tools may call; an endpoint that changes the cluster is not among them."""


class Reader(Source, Protocol):
    """The observer."""

    async def view(self, name: str, params: Params) -> Document: ...


async def ask(reader: Reader, tool: ReadTool, arguments: Mapping[str, Any]) -> Answer:
    """ViewError for a wrong argument, or when there is nothing to show."""
    params = tool.params(arguments)
    document = await _read(reader, tool, params)
    return Answer(
        document={key: document.get(key) for key in tool.only} if tool.only else document,
        listed=tool.listed,
        narrow=tool.narrow,
        without=tool.without,
        longest_text=tool.longest_text,
    )


async def _read(reader: Reader, tool: ReadTool, params: Params) -> Document:
    if not tool.endpoint:
        return await reader.view(tool.view, params)
    document = await READING[tool.endpoint].handle(reader, params, {})
    if not isinstance(document, dict):
        raise ViewError(f"{tool.name} is answered with a file, which no tool shows")
    return document
