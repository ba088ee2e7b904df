# SPDX-License-Identifier: Apache-2.0
"""Files of a data directory beside its partitions: offset checkpoints, meta.properties, clean-stop marker.

All are written whole or not at all. Written by broker/partition/checkpoints.py, R21 and R22 in the
design.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from crc32c import crc32c

from headrace.errors import NewerFormatError, StorageError, newer_format
from headrace.types import TopicPartition
from headrace.world import Files, read_file, replace_file

logger = logging.getLogger(__name__)

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
META_PROPERTIES_FILE = "meta.properties"
META_COPY_FILE = "headrace-meta-copy"
CLEAN_MARKER_FILE = ".kafka_cleanshutdown"
FORMAT_VERSION = 1

_CHECKPOINT_VERSION = 0
_MARKER_VERSION = 0
_KAFKA_META_VERSION = 1
_ADVICE = {
    "cluster.id": "name the coordination store of that cluster, restore it if it was lost (headrace store "
    "restore), or name another data directory",
    "node.id": "start it under that id, or name another data directory",
}


def write_offset_checkpoint(files: Files, path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    lines = [str(_CHECKPOINT_VERSION), str(len(offsets))]
    lines += (f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items()))
    replace_file(files, path, ("\n".join(lines) + "\n").encode())


def read_offset_checkpoint(files: Files, path: Path) -> dict[TopicPartition, int]:
    """Empty when the file is missing. StorageError when it cannot be read as a whole: half would mislead."""
    try:
        data = read_file(files, path)
    except FileNotFoundError:
        return {}
    try:
        return _parse_checkpoint(data.decode("ascii"))
    except ValueError as error:
        raise StorageError(f"{path}: {error}") from error


def _parse_checkpoint(text: str) -> dict[TopicPartition, int]:
    lines = text.split("\n")
    if lines[0] != str(_CHECKPOINT_VERSION) or len(lines) < 2:
        raise ValueError(f"line 1: version {lines[0]!r} instead of {_CHECKPOINT_VERSION}")
    count = int(lines[1])
    if len(lines) != count + 3 or lines[-1]:
        raise ValueError(f"{count} entries announced, {len(lines) - 3} lines found")
    offsets = {}
    for number, line in enumerate(lines[2:-1], 3):
        parts = line.split(" ")
        if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
            raise ValueError(f"line {number}: {line!r} is not 'topic partition offset'")
        offsets[TopicPartition(parts[0], int(parts[1]))] = int(parts[2])
    if len(offsets) != count:
        raise ValueError("a partition is listed twice")
    return offsets


def check_format(files: Files, directory: Path) -> None:
    """Refuses a data directory of a later version, before any file of it is read or changed.

    This one number stands for every file of the directory (docs/formats.md).
    """
    path = directory / META_PROPERTIES_FILE
    try:
        found = _parse_properties(read_file(files, path).decode("utf-8", "replace"))
    except FileNotFoundError:
        return
    _refuse_newer(path, found.get("headrace.format", ""))


def check_meta_properties(
    files: Files, directory: Path, *, cluster_id: str, node_id: int, new_directory_id: str
) -> str:
    """Writes meta.properties at the first start; afterwards refuses a directory that is not this node's.

    Returns the directory's id, as Kafka's `directory.id`; one that had none yet gets the new one. A copy
    with a checksum takes the place of a damaged file.
    """
    path, copy = directory / META_PROPERTIES_FILE, directory / META_COPY_FILE
    ours = {"version": str(_KAFKA_META_VERSION), "cluster.id": cluster_id, "node.id": str(node_id)}
    check = partial(_check_properties, files, path, ours, new_directory_id)
    copied = _read_copy(files, copy)
    try:
        if copied is not None and not files.exists(path):
            raise StorageError(f"{path} is missing")
        directory_id = check()
    except NewerFormatError:
        raise  # a later version may keep no copy
    except StorageError as error:
        if copied is None:
            raise
        damaged = None if not files.exists(path) else read_file(files, path)
        replace_file(files, path, copied)
        try:
            directory_id = check()
        except StorageError:
            if damaged is not None:
                replace_file(files, path, damaged)
            raise error from None
        logger.error("%s; it was written again from its copy", error)
    text = read_file(files, path)
    if text != copied:
        replace_file(files, copy, b"%08x\n" % crc32c(text) + text)
    return directory_id


def _read_copy(files: Files, path: Path) -> bytes | None:
    """None when there is none, or it is damaged itself."""
    try:
        checksum, _, text = read_file(files, path).partition(b"\n")
    except FileNotFoundError:
        return None
    return text if checksum == b"%08x" % crc32c(text) else None


def _check_properties(files: Files, path: Path, wanted: Mapping[str, str], new_directory_id: str) -> str:
    ours = {**wanted, "headrace.format": str(FORMAT_VERSION)}
    try:
        text = read_file(files, path).decode("utf-8", "replace")
    except FileNotFoundError:
        _write_properties(files, path, {**ours, "directory.id": new_directory_id})
        return new_directory_id
    found = _parse_properties(text)
    _check_format(path, found.get("headrace.format", ""))
    for key in ("cluster.id", "node.id"):
        if found.get(key) != ours[key]:
            raise StorageError(
                f"{path}: {key} is {found.get(key)!r}, but this node has {ours[key]!r}; {_ADVICE[key]}"
            )
    if "directory.id" not in found:
        _write_properties(files, path, {**found, "directory.id": new_directory_id})
    return found.get("directory.id", new_directory_id)


def _write_properties(files: Files, path: Path, values: Mapping[str, str]) -> None:
    replace_file(files, path, "".join(f"{key}={value}\n" for key, value in values.items()).encode())


def _check_format(path: Path, text: str) -> None:
    if not text.isdecimal():
        raise StorageError(f"{path}: headrace.format is {text!r}; this is not a directory of Headrace")
    _refuse_newer(path, text)


def _refuse_newer(path: Path, text: str) -> None:
    if text.isdecimal() and int(text) > FORMAT_VERSION:
        raise NewerFormatError(newer_format(path, text, FORMAT_VERSION))


def _parse_properties(text: str) -> dict[str, str]:
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def write_clean_marker(
    files: Files, directory: Path, *, node_epoch: int, boot_id: str, checksums: Mapping[str, int]
) -> None:
    """R22: the last act of a controlled stop, when everything else is on disk.

    `checksums`: of the checkpoints, by file name. Kafka and earlier versions ignore them.
    """
    marker = {"version": _MARKER_VERSION, "brokerEpoch": node_epoch, "bootId": boot_id}
    data = json.dumps({**marker, "checksums": dict(checksums)}).encode()
    replace_file(files, directory / CLEAN_MARKER_FILE, data)


def read_clean_marker(files: Files, directory: Path) -> dict[str, Any] | None:
    """None when there is none or it cannot be read."""
    try:
        marker = json.loads(read_file(files, directory / CLEAN_MARKER_FILE))
    except (FileNotFoundError, ValueError):
        return None
    return marker if isinstance(marker, dict) and marker.get("version") == _MARKER_VERSION else None


def take_clean_marker(files: Files, directory: Path) -> dict[str, Any] | None:
    """None: the last stop was not clean. The marker is gone, durably, before a log is opened (R22)."""
    path = directory / CLEAN_MARKER_FILE
    found = read_clean_marker(files, directory)
    if files.exists(path):
        files.unlink(path)
        files.sync_directory(directory)
    return found


def checksum_of(files: Files, path: Path) -> int | None:
    """None when there is no such file."""
    try:
        return int(crc32c(read_file(files, path)))
    except FileNotFoundError:
        return None


def keep_damaged(files: Files, path: Path) -> Path | None:
    """Renames a damaged file so that it stays on the disk; its new name. None when there is no such file."""
    if not files.exists(path):
        return None
    target = damaged_name(files, path)
    files.rename(path, target)
    files.sync_directory(path.parent)
    return target


def damaged_name(files: Files, path: Path) -> Path:
    """A name beside it that no file has yet."""
    number = 1
    while files.exists(target := path.with_name(f"{path.name}.damaged-{number}")):
        number += 1
    return target
