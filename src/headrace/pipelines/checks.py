"""What can be told to be wrong before Spark is started, which takes seconds. Read next: runner.py."""

from __future__ import annotations

import re
from collections.abc import Iterable

from headrace.client.admin import Admin
from headrace.client.errors import ClientError
from headrace.pipelines.definition import Analyze, Copy, Pipeline
from headrace.pipelines.definition_keys import default_checkpoints


def check_places(pipelines: Iterable[Pipeline], master: str) -> None:
    """Executors on other machines write there too."""
    if re.fullmatch(r"local(\[.*\])?", master):
        return
    for pipeline in pipelines:
        if pipeline.checkpoint.parent == default_checkpoints():
            raise ClientError(
                f"pipeline {pipeline.name!r}: a cluster needs a checkpoint that all its machines see, "
                "not one in this user's home",
                next_step="give --checkpoint (in a file: checkpoints), on a shared file system",
            )


def check_topics(pipelines: Iterable[Pipeline]) -> None:
    """ClientError when a broker cannot be reached, or names the topic that is not there."""
    admins: dict[str, Admin] = {}
    for pipeline in pipelines:
        bootstrap = pipeline.source.bootstrap
        if any(name.lower().startswith("kafka.s") for name in pipeline.source.options):
            continue  # needs to log in: the source itself will tell
        if bootstrap not in admins:
            admins[bootstrap] = Admin(bootstrap)
        for topic in _topics(pipeline):
            if not admins[bootstrap].topic_exists(topic):
                raise ClientError(
                    f"pipeline {pipeline.name!r}: topic {topic!r} does not exist at {bootstrap}",
                    next_step=f"create it: headrace topics create {topic}",
                    code="UNKNOWN_TOPIC_OR_PART",
                )


def _topics(pipeline: Pipeline) -> list[str]:
    written = pipeline.to if isinstance(pipeline, Analyze | Copy) else None
    return [
        *pipeline.source.topics,
        *(each for each in (written, pipeline.source.rejects) if each is not None),
    ]
