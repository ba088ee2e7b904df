# SPDX-License-Identifier: Apache-2.0
"""`headrace mcp`: read-only tools for assistants, over standard input and output."""

from __future__ import annotations

from importlib.util import find_spec

from headrace.cli.option_sets import takes_options
from headrace.cli.options import ConnectOptions
from headrace.client.errors import ClientError


@takes_options
def mcp(*, connect: ConnectOptions) -> None:
    """Let an assistant look at a cluster: the console's views as tools.

    Speaks the Model Context Protocol over standard input and output; an
    assistant starts it. The tools only read: topics, groups, lag, rebalances,
    history, configs, records. Works with Apache Kafka too.

    \b
    Examples:
      headrace mcp
      headrace mcp --bootstrap kafka:9092
      headrace mcp --command-config client.properties
    """
    if find_spec("mcp") is None:
        raise ClientError(
            "headrace mcp needs the Python package mcp", next_step="pip install 'headrace[mcp]'"
        )
    import asyncio

    from headrace.console.assistant.server import serve

    asyncio.run(serve(connect.cluster()))
