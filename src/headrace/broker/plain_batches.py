"""Which batches of a run of produce requests can be written together, without a closer look at any.

Read next: partition.py (`append_run`), produce_run.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.broker.topic_settings import TopicSettings
from headrace.log.producer_state import ProducerState
from headrace.wire.batch import CODEC_MASK, LOG_OVERHEAD, BatchHeader, read_sound_batch
from headrace.wire.produce_run import RunFrame
from headrace.wire.record_layout import WALK


def plain_batches(
    view: memoryview,
    frames: Sequence[RunFrame],
    settings: TopicSettings,
    producers: ProducerState,
    now_ms: int,
) -> list[tuple[int, BatchHeader]]:
    """(position, header) of the first ones, up to the first that must be looked at alone."""
    batches: list[tuple[int, BatchHeader]] = []
    max_bytes = settings.log.max_message_bytes
    oldest = now_ms - settings.timestamp_before_max_ms
    newest = now_ms + settings.timestamp_after_max_ms
    odd_attributes = ~settings.plain_attributes
    before: BatchHeader | None = None
    for _, start, end, _ in frames:
        header = read_sound_batch(view, start, end, max_bytes)
        if (
            header is None
            or header.attributes & odd_attributes
            or not oldest <= header.max_timestamp <= newest
            or (header.producer_id >= 0 and not _continues(producers, before, header))
        ):
            break
        batches.append((start, header))
        before = header
    if settings.validates_uncompressed:
        del batches[_count_sound(view, batches) :]
    return batches


def _count_sound(view: memoryview, batches: Sequence[tuple[int, BatchHeader]]) -> int:
    """How many come before the first whose records are malformed; compressed ones are not looked into."""
    assert WALK is not None
    checked = [number for number, (_, header) in enumerate(batches) if not header.attributes & CODEC_MASK]
    places: list[int] = []
    for number in checked:
        start, header = batches[number]
        places += (start, header.batch_length + LOG_OVERHEAD)
    sound = WALK.count_sound(view, places)
    return checked[sound] if sound < len(checked) else len(batches)


def _continues(producers: ProducerState, before: BatchHeader | None, header: BatchHeader) -> bool:
    """Whether an idempotent producer's batch is new and in order, after one that is not written yet."""
    if before is None:
        return producers.check(header) is None
    return (
        header.producer_id == before.producer_id
        and header.producer_epoch == before.producer_epoch
        and header.base_sequence == before.base_sequence + before.record_count
    )
