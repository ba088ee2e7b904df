# SPDX-License-Identifier: Apache-2.0
"""Kafka's `partition.metadata`: the topic id of a partition's directory, lest it be taken for another's."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from uuid import UUID

from headrace.errors import StorageError
from headrace.log.segments.files import write_cache_file
from headrace.world import Files, read_file

FILE_NAME = "partition.metadata"
_VERSION = 0
_CONTENT = re.compile(r"version: 0\ntopic_id: ([A-Za-z0-9_-]{22})\n")


class ForeignDirectoryError(StorageError):
    """The directory was made for another topic of the same name."""


def check(files: Files, directory: Path, topic_id: UUID | None) -> None:
    """Writes the file when it is missing or torn. Raises ForeignDirectoryError."""
    if topic_id is None:
        return
    path = directory / FILE_NAME
    wanted = encode_topic_id(topic_id)
    found = _read(files, path)
    if found is None:
        write(files, directory, topic_id)
    elif found != wanted:
        raise ForeignDirectoryError(
            f"{path}: belongs to topic id {found}, but the topic has id {wanted}; move the directory away"
        )


def write(files: Files, directory: Path, topic_id: UUID | None) -> None:
    if topic_id is not None:
        text = f"version: {_VERSION}\ntopic_id: {encode_topic_id(topic_id)}\n"
        write_cache_file(files, directory / FILE_NAME, text.encode())


def topic_id_of(files: Files, directory: Path) -> UUID | None:
    """None when the directory does not say."""
    found = _read(files, directory / FILE_NAME)
    return None if found is None else UUID(bytes=base64.urlsafe_b64decode(found + "=="))


def may_be_of(files: Files, directory: Path, topic_id: UUID) -> bool:
    """False when the metadata file names another topic id."""
    return _read(files, directory / FILE_NAME) in (None, encode_topic_id(topic_id))


def _read(files: Files, path: Path) -> str | None:
    try:
        match = _CONTENT.fullmatch(read_file(files, path).decode("ascii", "replace"))
    except FileNotFoundError:
        return None
    return match and match[1]


def encode_topic_id(topic_id: UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
