# SPDX-License-Identifier: Apache-2.0
"""One of Apache Kafka's Java tools against one cluster, as the JVM tests call it."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.cluster.engines.kafka import KafkaEngine, ToolResult


@dataclass(frozen=True, slots=True)
class JavaTool:
    engine: KafkaEngine
    bootstrap: str

    def __call__(self, tool: str, *arguments: str, stdin: str = "") -> str:
        """What it printed; fails the test when it did not succeed."""
        result = self.run(tool, *arguments, stdin=stdin)
        assert result.returncode == 0, f"{tool} {arguments}\n{result.output}"
        return result.stdout

    def run(self, tool: str, *arguments: str, stdin: str = "") -> ToolResult:
        return self.engine.tool(tool, "--bootstrap-server", self.bootstrap, *arguments, stdin=stdin)

    def refused(self, tool: str, *arguments: str) -> str:
        """What it printed; fails the test when it succeeded."""
        result = self.run(tool, *arguments)
        assert result.returncode != 0, f"{tool} {arguments} was expected to fail\n{result.output}"
        return result.output
