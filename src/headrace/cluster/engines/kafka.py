# SPDX-License-Identifier: Apache-2.0
"""Apache Kafka as an engine: one combined KRaft node from its jars, and a runner for its Java tools.

Settings are Kafka's own defaults, and the JVM options are those of its start script; only what a
single node requires is set. Read next: kafka_jars.py.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO

from headrace.cluster.engines.engine import (
    EngineError,
    PreparedNode,
    RunningNode,
    command_environment,
    free_ports,
    write_properties,
)
from headrace.cluster.engines.kafka_jars import KafkaJars, cache_folder, find_kafka_jars
from headrace.cluster.engines.kafka_member import kafka_member_settings
from headrace.cluster.plan import ClusterPlan, Member, new_cluster_id

# What kafka-run-class.sh and kafka-server-start.sh pass.
_SERVER_JVM_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
_TOOL_JVM_OPTIONS = ("-Xmx512M", "-Djava.awt.headless=true")

TOOLS = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "storage": "kafka.tools.StorageTool",
}

_LOG4J = """<Configuration status="WARN">
  <Appenders>
    <Console name="out" target="{target}"><PatternLayout pattern="[%d] %p %m (%c)%n"/></Console>
  </Appenders>
  <Loggers><Root level="{level}"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    returncode: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


class KafkaEngine:
    name = "kafka"

    def __init__(self, jars: KafkaJars | None = None) -> None:
        self._given_jars = jars

    @cached_property
    def jars(self) -> KafkaJars:
        return self._given_jars or find_kafka_jars()

    @property
    def version(self) -> str:
        return self.jars.version

    def prepare(
        self, data_dir: Path, settings: Mapping[str, str], *, cluster_id: str | None = None
    ) -> PreparedNode:
        """Write server.properties and format the log directory, as in its quick start.

        `cluster_id`: of the cluster that the node belongs to.
        """
        port, controller_port = free_ports(2)
        all_settings = {**_node_settings(data_dir, port, controller_port), **settings}
        return self._prepared(data_dir, port, all_settings, cluster_id or new_cluster_id())

    def prepare_member(self, plan: ClusterPlan, member: Member, folder: Path) -> PreparedNode:
        """Prepare one node of a cluster. Initial nodes are controllers, added ones are not."""
        settings = {**kafka_member_settings(plan, member, folder / "logs"), **plan.settings}
        prepared = self._prepared(folder, member.port, settings, plan.cluster_id)
        return replace(prepared, host=member.host)

    def _prepared(
        self, data_dir: Path, port: int, settings: Mapping[str, str], cluster_id: str
    ) -> PreparedNode:
        properties = data_dir / "server.properties"
        write_properties(properties, settings)
        log4j = _log4j_file(data_dir / "log4j2.xml", level="INFO", target="SYSTEM_OUT")
        if not (Path(settings["log.dirs"]) / "meta.properties").exists():
            formatted = self.tool("storage", "format", "-t", cluster_id, "-c", str(properties))
            if formatted.returncode != 0:
                raise EngineError(f"Apache Kafka could not format {data_dir}:\n{formatted.output}")
        command = (
            self.jars.java,
            *_SERVER_JVM_OPTIONS,
            f"-Dlog4j2.configurationFile={log4j}",
            "kafka.Kafka",
            str(properties),
        )
        return PreparedNode(
            engine=self.name,
            command=command,
            environment=command_environment({"CLASSPATH": self.jars.class_path}),
            data_dir=data_dir / "logs",
            log_path=data_dir / "server.log",
            host="127.0.0.1",
            port=port,
        )

    def start(self, data_dir: Path, settings: Mapping[str, str]) -> RunningNode:
        return self.prepare(data_dir, settings).launch()

    def tool(
        self,
        tool: str,
        *arguments: str,
        stdin: str = "",
        timeout_ms: int = 120_000,
        jvm_options: tuple[str, ...] = (),
    ) -> ToolResult:
        """Run one of Kafka's Java programs, by its script's name (`topics`) or by its main class."""
        try:
            done = subprocess.run(
                self._tool_command(tool, arguments, jvm_options),
                env=command_environment({"CLASSPATH": self.jars.class_path}),
                input=stdin,
                capture_output=True,
                text=True,
                timeout=timeout_ms / 1000,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise EngineError(
                f"{tool} {' '.join(arguments)} did not end within {timeout_ms / 1000:.0f} s; it printed:\n"
                f"{_text(error.stdout)}{_text(error.stderr)}"
            ) from error
        return ToolResult(returncode=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def spawn_tool(
        self,
        tool: str,
        *arguments: str,
        stdout: IO[bytes],
        stderr: IO[bytes],
        class_path: str | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start one of them that runs until it is stopped; `class_path`: for those that need more jars."""
        return subprocess.Popen(
            self._tool_command(tool, arguments),
            env=command_environment({"CLASSPATH": class_path or self.jars.class_path}),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )

    def _tool_command(
        self, tool: str, arguments: Sequence[str], jvm_options: Sequence[str] = ()
    ) -> list[str]:
        return [
            self.jars.java,
            *_TOOL_JVM_OPTIONS,
            *jvm_options,
            f"-Dlog4j2.configurationFile={self._tool_log4j}",
            TOOLS.get(tool, tool),
            *arguments,
        ]

    @cached_property
    def _tool_log4j(self) -> Path:
        return _log4j_file(cache_folder() / "tools-log4j2.xml", level="WARN", target="SYSTEM_ERR")


def _node_settings(data_dir: Path, port: int, controller_port: int) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data_dir / "logs"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def _log4j_file(path: Path, *, level: str, target: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = _LOG4J.format(level=level, target=target)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path


def _text(output: str | bytes | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
