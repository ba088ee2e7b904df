# SPDX-License-Identifier: Apache-2.0
"""Apache Kafka's command-line tools by their own names and options: `kafka-topics` and three others.

Run as `headrace kafka-topics …`, or through a link named `kafka-topics` (or `kafka-topics.sh`) to the command
`headrace`, as in the container image. Why links: docs/decisions/0023. Requests are those of headrace's own
commands. Read next: topics.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import typer

from headrace.cli.errors import UsageError
from headrace.cli.kafka_tools.names import TOOLS
from headrace.cli.kafka_tools.options import ToolHelp, fail, fail_usage
from headrace.client.errors import ClientError

FAILURE = 1
"""Also for wrong options, as in Apache Kafka."""


def run_tool(tool: str, arguments: Sequence[str]) -> int:
    """Run one tool and return its exit code."""
    module = importlib.import_module(TOOLS[tool])
    try:
        code = module.run(arguments)
    except ToolHelp as printed:
        return printed.exit_code
    except UsageError as error:
        fail_usage(tool, error.what, error.next_step)
        return FAILURE
    except typer.BadParameter as error:  # from parts shared with the commands of headrace
        fail_usage(tool, error.message, None)
        return FAILURE
    except ClientError as error:
        fail(tool, module.ERROR, error)
        return FAILURE
    return code if isinstance(code, int) else 0
