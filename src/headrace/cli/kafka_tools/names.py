# SPDX-License-Identifier: Apache-2.0
"""The names of Apache Kafka's tools that headrace has, and how a command line calls one.

Imported by every start of `headrace`, so it imports nothing heavy. Read next: entry.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

TOOLS = {
    "kafka-topics": "headrace.cli.kafka_tools.topics",
    "kafka-console-producer": "headrace.cli.kafka_tools.console_producer",
    "kafka-console-consumer": "headrace.cli.kafka_tools.console_consumer",
    "kafka-consumer-groups": "headrace.cli.kafka_tools.consumer_groups",
}
"""Modules by the name of the tool."""


def headrace_arguments(command_line: Sequence[str]) -> list[str]:
    """The arguments of `headrace`; called through a link named as a tool, that name comes first."""
    program, *arguments = command_line
    tool = Path(program.replace("\\", "/")).name.removesuffix(".exe").removesuffix(".sh")
    return [tool, *arguments] if tool in TOOLS else arguments
