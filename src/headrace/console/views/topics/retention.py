# SPDX-License-Identifier: Apache-2.0
"""The retention edge of a log: which records are deleted next, and when. Pure; needs the log's segments."""

from __future__ import annotations

from datetime import UTC, datetime

from headrace.console.state.model import PartitionDetails, PartitionState, SegmentState, TopicState
from headrace.console.views.view import Document

_CLEANUP, _AGE, _BYTES = "cleanup.policy", "retention.ms", "retention.bytes"


def retention_edge(
    topic: TopicState, partition: PartitionState, details: PartitionDetails
) -> Document | None:
    """None where nothing is deleted by age or size, or where that is not known.

    Only whole segments are deleted, never the newest: `offset` is where the log begins after the next one.
    """
    segments = details.segments
    if not segments or len(segments) < 2 or details.segments_more:
        return None
    if "delete" not in topic.configs.get(_CLEANUP, "delete"):
        return None
    text = _by_size(topic, segments) or _by_age(topic, segments[0])
    return None if text is None else {"offset": segments[1].base, "text": text}


def _by_size(topic: TopicState, segments: tuple[SegmentState, ...]) -> str | None:
    limit = _number(topic.configs.get(_BYTES))
    held = sum(each.bytes for each in segments)
    if limit is None or limit < 0 or held - segments[0].bytes < limit:
        return None
    return f"the log is larger than {_BYTES} ({limit}): older records are deleted at the next check"


def _by_age(topic: TopicState, oldest: SegmentState) -> str | None:
    age = _number(topic.configs.get(_AGE))
    if age is None or age < 0 or oldest.newest_ms is None:
        return None
    try:
        when = datetime.fromtimestamp((oldest.newest_ms + age) / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None  # a producer's timestamp, which may be anything
    return f"older records are deleted from {when.isoformat(timespec='seconds')} on ({_AGE}={age})"


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
