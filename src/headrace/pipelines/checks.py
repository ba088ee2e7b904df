# SPDX-License-Identifier: Apache-2.0
"""Checks before Spark is started, which takes seconds. Read next: runner.py."""

from __future__ import annotations

import re
from collections.abc import Iterable

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.security_options import CONFIG, is_security_option, split_security_options
from headrace.client.tools.admin import Admin
from headrace.pipelines.definitions.definition import Analyze, Copy, Pipeline
from headrace.pipelines.definitions.definition_keys import default_checkpoints
from headrace.pipelines.jobs.records import security_options, source_options


def check_options(pipeline: Pipeline) -> None:
    """What Spark would refuse when the query starts. Needs PySpark; a client's file is not read here."""
    from pyspark_headrace.options import read_settings

    options = source_options(pipeline, group=None, stop_file="")
    if options.pop(CONFIG, None) is not None:
        named = next((name for name in options if is_security_option(name)), None)
        if named is not None:
            raise ClientError(
                f"{named} and a client's properties file both say how to connect",
                next_step="write all of it into the file",
            )
        options["kafka.security.protocol"] = "PLAINTEXT"
    read_settings(options, streaming=True)


def check_all_options(pipelines: Iterable[Pipeline]) -> None:
    """`check_options` of each; errors name the pipeline."""
    for pipeline in pipelines:
        try:
            check_options(pipeline)
        except ClientError as error:
            raise ClientError(
                f"pipeline {pipeline.name!r}: {error.what}", next_step=error.next_step
            ) from None


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
