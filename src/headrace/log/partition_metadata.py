"""Kafka's `partition.metadata`: the topic id of a partition's directory, lest it be taken for another's."""

from __future__ import annotations

import base64
from pathlib import Path
from uuid import UUID

from headrace.errors import StorageError
from headrace.world import Files, read_file, replace_file

FILE_NAME = "partition.metadata"
_VERSION = 0


def check(files: Files, directory: Path, topic_id: UUID | None) -> None:
    """Writes the file when it is missing; StorageError when the directory is another topic's."""
    if topic_id is None:
        return
    path = directory / FILE_NAME
    text = f"version: {_VERSION}\ntopic_id: {encode_topic_id(topic_id)}\n"
    try:
        found = read_file(files, path).decode("ascii", "replace")
    except FileNotFoundError:
        replace_file(files, path, text.encode())
        return
    if found.split() != text.split():
        raise StorageError(
            f"{path}: holds {' '.join(found.split())!r}, but the topic has id {encode_topic_id(topic_id)}; "
            "move the directory away"
        )


def encode_topic_id(topic_id: UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
