# SPDX-License-Identifier: Apache-2.0
"""Gets what a tool answers with from the observer: a view's document, or a part of it.

Knows no protocol. Read next: answers.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from headrace.console.assistant.answers import Answer
from headrace.console.assistant.catalog import ReadTool
from headrace.console.views.view import Document, Params


class Reader(Protocol):
    """The part of the observer that tools may use."""

    async def view(self, name: str, params: Params) -> Document: ...


async def ask(reader: Reader, tool: ReadTool, arguments: Mapping[str, Any]) -> Answer:
    """ViewError for a wrong argument, or when there is nothing to show."""
    document = await reader.view(tool.view, tool.params(arguments))
    shown = {key: document.get(key) for key in tool.only} if tool.only else document
    return Answer(document=shown, listed=tool.listed, narrow=tool.narrow, longest_text=tool.longest_text)
