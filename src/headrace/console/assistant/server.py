# SPDX-License-Identifier: Apache-2.0
"""`headrace mcp`: the console's views as tools of the Model Context Protocol, over standard input and output.

The only module that imports the SDK (extra `mcp`). It can only read: a tool is a view or an endpoint that
changes nothing (catalog.py). Read next: catalog.py, answers.py.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from headrace.client.cluster import Cluster
from headrace.console.assistant.answers import LONGEST_TEXT, as_text, visible
from headrace.console.assistant.asking import WATCHED_S, Asker
from headrace.console.assistant.catalog import TOOLS, ReadTool, find_tool
from headrace.console.observing.observer import Observer
from headrace.errors import HeadraceError
from headrace.version import __version__

ANSWER_WITHIN_S = 30.0
AT_ONCE = 4
"""Answers that are made at the same time; more wait."""
INSTRUCTIONS = (
    "Read-only tools for one Kafka or Headrace cluster. Begin with cluster_overview or alarms. Answers have "
    "at most 32 KB: `left_out` says what is missing and `narrow` how to ask for less. null means not known, "
    "which is not 0; `unknown` says what this cluster does not tell, `problem` why it cannot be read now. "
    "Times are UTC. `commands` are for a person to run: these tools change nothing."
)
_LOG = logging.getLogger(__name__)


async def serve(cluster: Cluster) -> None:
    """Answer until standard input is closed."""
    observer = Observer(cluster, stop_after_s=WATCHED_S)
    await observer.start()
    asker = Asker(observer)
    looking = asyncio.ensure_future(asker.begin())
    try:
        async with stdio_server() as (read, write):
            server = make_server(asker)
            await server.run(read, write, server.create_initialization_options())
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await observer.close()


def make_server(asker: Asker) -> Server[Any]:
    turns = asyncio.Semaphore(AT_ONCE)

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in TOOLS])

    async def call_tool(
        _: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        async with turns:
            return await _answer(asker, params.name, params.arguments or {})

    return Server(
        "headrace",
        version=__version__,
        title="Headrace",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _described(tool: ReadTool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.about,
        input_schema=tool.schema(),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=True,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=False,
        ),
    )


async def _answer(asker: Asker, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
    try:
        tool = find_tool(name)
        async with asyncio.timeout(ANSWER_WITHIN_S):
            return _text(as_text(await asker.ask(tool, arguments)))
    except TimeoutError:
        return _error(f"no answer within {ANSWER_WITHIN_S:.0f} s", "ask for less, or again in a minute")
    except HeadraceError as error:
        return _error(str(getattr(error, "what", error)), getattr(error, "next_step", None))
    except Exception:  # noqa: BLE001 - one answer failed; the next may not
        _LOG.exception("%s failed", name)
        return _error(f"{name} failed for a reason that is in the log of headrace mcp", None)


def _error(what: str, next_step: str | None) -> types.CallToolResult:
    text = f"{what}; {next_step}" if next_step else what
    return _text(visible(text, LONGEST_TEXT), failed=True)


def _text(text: str, *, failed: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=failed)
