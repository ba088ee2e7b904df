# SPDX-License-Identifier: Apache-2.0
"""Checks before Spark is started, which takes seconds. Read next: runner.py."""

from __future__ import annotations

import re
from collections.abc import Iterable

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.security_options import split_security_options
from headrace.client.tools.admin import Admin
from headrace.pipelines.definition import Analyze, Copy, Pipeline
from headrace.pipelines.definition_keys import default_checkpoints
from headrace.pipelines.records import security_options


def check_checkpoints(pipelines: Iterable[Pipeline], master: str) -> None:
    """On a cluster, checkpoints must be on a shared file system: executors write there, too."""
    if re.fullmatch(r"local(\[.*\])?", master):
        return
    for pipeline in pipelines:
        if pipeline.checkpoint.parent == default_checkpoints():
            raise ClientError(
                f"pipeline {pipeline.name!r}: a cluster needs a checkpoint that all its machines share, "
                "not one in this user's home",
                next_step="set --checkpoint (in a file: checkpoints) to a shared file system",
            )


def check_topics(pipelines: Iterable[Pipeline]) -> None:
    """Raises ClientError when no broker can be reached or a topic does not exist."""
    admins: dict[Cluster, Admin] = {}
    for pipeline in pipelines:
        cluster = cluster_of(pipeline)
        if cluster not in admins:
            admins[cluster] = Admin(cluster)
        for topic in _topics(pipeline):
            if not admins[cluster].topic_exists(topic):
                raise ClientError(
                    f"pipeline {pipeline.name!r}: topic {topic!r} does not exist at {cluster}",
                    next_step=f"create it: headrace topics create {topic}",
                    code="UNKNOWN_TOPIC_OR_PART",
                )


def cluster_of(pipeline: Pipeline) -> Cluster:
    """The cluster of its source."""
    security, _ = split_security_options(security_options(pipeline))
    return Cluster(bootstrap=pipeline.source.bootstrap, security=security)


def _topics(pipeline: Pipeline) -> list[str]:
    written = pipeline.to if isinstance(pipeline, Analyze | Copy) else None
    return [
        *pipeline.source.topics,
        *(each for each in (written, pipeline.source.rejects) if each is not None),
    ]
