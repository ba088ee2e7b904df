# SPDX-License-Identifier: Apache-2.0
"""MirrorMaker 2 of Apache Kafka: copies topics, their settings and committed offsets to another cluster.

For moving from Headrace to Apache Kafka and back (docs/scaling.md, which shows the same settings). Names stay
as they are, so clients change nothing but the address. Read next: kafka.py, kafka_jars.py.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from headrace.cluster.engines.engine import write_properties
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.cluster.engines.kafka_jars import mirror_maker_class_path

_MAIN_CLASS = "org.apache.kafka.connect.mirror.MirrorMaker"
_STOP_S = 30
_STORED_TOPICS = ("checkpoints", "heartbeats", "offset-syncs")
_WORKER_TOPICS = ("config.storage", "offset.storage", "status.storage")


def mirror_settings(source: str, target: str, *, replication_factor: int = 3) -> dict[str, str]:
    """The properties of a move from the bootstrap address `source` to `target`; factors are the target's."""
    factor = str(replication_factor)
    return {
        "clusters": "source,target",
        "source.bootstrap.servers": source,
        "target.bootstrap.servers": target,
        "source->target.enabled": "true",
        "source->target.topics": ".*",
        "source->target.topics.exclude": r"__.*,_headrace.*,mm2.*",
        "source->target.groups": ".*",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "refresh.topics.interval.seconds": "5",
        "refresh.groups.interval.seconds": "5",
        "offset.lag.max": "0",
        "emit.heartbeats.enabled": "false",
        "sync.topic.acls.enabled": "false",
        "config.properties.exclude": r"headrace\..*,record\.validation,min\.insync\.replicas",
        "replication.factor": factor,
        **{f"{name}.topic.replication.factor": factor for name in _STORED_TOPICS},
        **{f"{name}.replication.factor": factor for name in _WORKER_TOPICS},
    }


@contextmanager
def running_mirror_maker(
    engine: KafkaEngine, folder: Path, settings: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """It copies until the end of the context, with its log in `folder`."""
    process = _start(engine, folder, settings)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _start(engine: KafkaEngine, folder: Path, settings: Mapping[str, str]) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    properties = folder / "mirror.properties"
    write_properties(properties, settings)
    with (folder / "mirror.log").open("ab") as log:
        return engine.spawn_tool(
            _MAIN_CLASS,
            str(properties),
            stdout=log,
            stderr=log,
            class_path=mirror_maker_class_path(engine.jars),
        )
