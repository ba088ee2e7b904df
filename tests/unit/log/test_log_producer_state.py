# SPDX-License-Identifier: Apache-2.0
"""Idempotent producers: new, duplicate, out of order, fenced; what survives restarts and truncation (R28)."""

from __future__ import annotations

import pytest

from headrace.errors import ApiError
from headrace.log.log_config import LogConfig
from headrace.log.producers.markers import EndTransactionMarker
from headrace.log.producers.snapshot import decode_snapshot, encode_snapshot
from headrace.log.producers.state import LAST_SEQUENCE, ProducerEntry, ProducerState
from headrace.testing.memory_files import MemoryFiles
from headrace.wire.batch import BatchHeader, read_header
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from headrace.world import read_file
from tests.harness.batches.log_tools import DIRECTORY, NOW_MS, Producer, batch, batch_of, open_log, read_all

DAY_MS = 86_400_000


def header(
    sequence: int, *, epoch: int = 0, count: int = 1, producer_id: int = 5, **fields: object
) -> BatchHeader:
    records = [Record(delta, NOW_MS, b"k", b"v") for delta in range(count)]
    data = build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        **fields,  # type: ignore[arg-type]
    )
    return read_header(memoryview(data))


def state_with(*headers: BatchHeader) -> ProducerState:
    state = ProducerState(expiration_ms=DAY_MS, now_ms=NOW_MS)
    offset = 100
    for each in headers:
        assert state.check(each) is None
        state.update(each, offset)
        offset += each.last_offset_delta + 1
    return state


def refused(state: ProducerState, batch_header: BatchHeader) -> ErrorCode:
    with pytest.raises(ApiError) as raised:
        state.check(batch_header)
    return raised.value.code


@pytest.mark.parametrize("sequence", [0, 1, 77, LAST_SEQUENCE])
def test_unknown_producer_may_begin_anywhere(sequence: int) -> None:
    assert state_with().check(header(sequence)) is None


def test_next_sequence_is_accepted_and_a_gap_refused() -> None:
    state = state_with(header(0, count=3))
    assert state.check(header(3)) is None
    assert refused(state, header(4)) == ErrorCode.out_of_order_sequence_number
    assert refused(state, header(1)) == ErrorCode.out_of_order_sequence_number


def test_the_last_five_batches_are_answered_with_their_offsets() -> None:
    state = state_with(*(header(2 * number, count=2) for number in range(7)))
    for number in range(2, 7):
        assert state.check(header(2 * number, count=2)) == 100 + 2 * number
    assert refused(state, header(2, count=2)) == ErrorCode.out_of_order_sequence_number


def test_same_first_sequence_with_another_length_is_no_duplicate() -> None:
    state = state_with(header(0, count=3))
    assert refused(state, header(0, count=2)) == ErrorCode.out_of_order_sequence_number


def test_sequences_wrap_to_zero() -> None:
    state = state_with(header(LAST_SEQUENCE - 1, count=2))
    assert state.check(header(0)) is None
    assert refused(state, header(1)) == ErrorCode.out_of_order_sequence_number
    assert state.check(header(LAST_SEQUENCE - 1, count=2)) == 100


def test_batch_across_the_wrap_is_followed_and_recognised() -> None:
    across = header(LAST_SEQUENCE, count=3)
    assert across.last_sequence == 1
    state = state_with(across)
    assert state.check(header(2)) is None
    assert state.check(across) == 100


def test_new_epoch_begins_at_zero() -> None:
    state = state_with(header(0), header(1))
    assert state.check(header(0, epoch=1)) is None
    assert refused(state, header(2, epoch=1)) == ErrorCode.out_of_order_sequence_number


def test_older_epoch_is_fenced() -> None:
    state = state_with(header(0), header(0, epoch=2))
    assert refused(state, header(1, epoch=1)) == ErrorCode.invalid_producer_epoch


def test_new_epoch_forgets_the_batches_of_the_old() -> None:
    state = state_with(header(0), header(0, epoch=1))
    assert refused(state, header(0, epoch=0)) == ErrorCode.invalid_producer_epoch
    assert state.check(header(0, epoch=1)) == 101


def test_idle_producers_expire_by_append_time_not_by_record_timestamps() -> None:
    state = ProducerState(expiration_ms=DAY_MS, now_ms=NOW_MS)
    old_times = header(0, producer_id=6)._replace(max_timestamp=5)
    state.update(header(0), 0)
    state.update(old_times, 1)
    assert state.expire(NOW_MS + DAY_MS - 1) == 0
    state.update(header(1), 2)
    assert state.expire(NOW_MS + DAY_MS) == 1
    assert [entry.producer_id for entry in state.active()] == [5]


def test_ten_thousand_producers_are_small() -> None:
    import tracemalloc

    template = header(0)
    headers = [template._replace(base_sequence=sequence) for sequence in range(6)]
    tracemalloc.start()
    state = ProducerState(expiration_ms=DAY_MS)
    for producer_id in range(10_000):
        for each in headers:
            state.update(each._replace(producer_id=producer_id), 10 * producer_id)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 8 << 20


class TestTransactions:
    def test_first_unstable_offset_is_the_oldest_open_transaction(self) -> None:
        state = ProducerState(expiration_ms=DAY_MS)
        state.update(header(0, producer_id=1, is_transactional=True), 10)
        state.update(header(0, producer_id=2, is_transactional=True), 20)
        assert state.first_unstable_offset == 10
        marker = EndTransactionMarker(commits=True, coordinator_epoch=3)
        state.update(header(-1, producer_id=1, is_transactional=True, is_control=True), 30, marker)
        assert state.first_unstable_offset == 10, "the marker is not replicated yet"
        state.high_watermark_moved(31)
        assert state.first_unstable_offset == 20

    def test_open_transactions_do_not_expire(self) -> None:
        state = ProducerState(expiration_ms=DAY_MS)
        state.update(header(0, is_transactional=True), 10)
        assert state.expire(NOW_MS + 10 * DAY_MS) == 0

    def test_markers_are_read_from_the_log(self) -> None:
        files = MemoryFiles()
        log = open_log(files)
        producer = {"producer_id": 5, "producer_epoch": 0}
        log.append(*batch(b"x", base_sequence=0, is_transactional=True, **producer), 0)
        assert log.producers.first_unstable_offset == 0
        commit = Record(0, NOW_MS, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x09")
        control = {"is_transactional": True, "is_control": True}
        log.append(*batch_of([commit], **producer, **control), 0)
        log.producers.high_watermark_moved(2)
        assert log.producers.first_unstable_offset is None
        again = open_log(files, clean=False)
        again.producers.high_watermark_moved(2)
        assert again.producers.first_unstable_offset is None
        entry = again.producers.get(5)
        assert entry is not None
        assert (entry.coordinator_epoch, entry.last_sequence) == (9, 0)


class TestSnapshots:
    def test_round_trip_keeps_five_batches_and_the_transaction(self) -> None:
        state = state_with(*(header(number) for number in range(6)))
        state.update(header(0, producer_id=8, is_transactional=True), 200)
        entries = decode_snapshot(encode_snapshot(state.active()))
        assert entries is not None
        restored = ProducerState(expiration_ms=DAY_MS)
        restored.restore(entries)
        assert restored.check(header(1)) == 101
        assert restored.first_unstable_offset == 200

    def test_layout_is_kafkas_and_its_reader_would_keep_the_last_batch(self) -> None:
        entry = ProducerEntry(0x0102, 3)
        entry.add_batch(7, 50, 2, 1234)
        entry.add_batch(9, 52, 1, 1235)
        data = encode_snapshot([entry])
        assert data[:2] == b"\x00\x01"
        assert data[6:10] == b"\x00\x00\x00\x02"
        last = data[10 + 46 :]
        fields = "0000000000000102 0003 00000009 0000000000000034 00000001 00000000000004d3"
        assert last == bytes.fromhex(fields + "ffffffff ffffffffffffffff")

    def test_producer_without_batches_keeps_its_epoch(self) -> None:
        entry = ProducerEntry(4, 2)
        entry.coordinator_epoch = 6
        restored = decode_snapshot(encode_snapshot([entry]))
        assert restored is not None
        assert (restored[0].epoch, restored[0].coordinator_epoch, restored[0].last_offset) == (2, 6, -1)

    def test_damage_is_noticed(self) -> None:
        data = encode_snapshot([ProducerEntry(1, 0)])
        for position in range(len(data)):
            broken = bytearray(data)
            broken[position] ^= 4
            assert decode_snapshot(bytes(broken)) is None
        assert decode_snapshot(data[:-1]) is None
        assert decode_snapshot(b"") is None

    def test_one_at_each_roll_and_at_a_clean_stop(self) -> None:
        files = MemoryFiles()
        log = open_log(files, LogConfig(segment_bytes=300))
        producer = Producer(5)
        for _ in range(8):
            log.append(*producer.batch(bytes(50)), 0)
        log.close()
        names = files.listdir(DIRECTORY)
        bases = [name[:20] for name in names if name.endswith(".log")]
        snapshots = [name[:20] for name in names if name.endswith(".snapshot")]
        assert snapshots == [*bases[1:], f"{8:020d}"]


class TestRestart:
    @pytest.mark.parametrize("clean", [True, False])
    def test_duplicates_are_known_after_a_restart(self, clean: bool) -> None:
        files = MemoryFiles()
        log = open_log(files, LogConfig(segment_bytes=400))
        producer = Producer(5)
        for _ in range(20):
            log.append(*producer.batch(bytes(40)), 0)
        if clean:
            log.close()
        again = open_log(files, LogConfig(segment_bytes=400), clean=clean)
        for number in range(15, 20):
            assert again.producers.check(header(number)) == number
        assert again.producers.check(header(20)) is None

    def test_truncation_rewinds_the_state(self) -> None:
        files = MemoryFiles()
        log = open_log(files, LogConfig(segment_bytes=400))
        producer = Producer(5)
        for _ in range(20):
            log.append(*producer.batch(bytes(40)), 0)
        log.truncate_to(7)
        assert log.producers.check(header(7)) is None
        assert log.producers.check(header(6)) == 6
        assert refused(log.producers, header(20)) == ErrorCode.out_of_order_sequence_number
        log.truncate_fully_and_start_at(50)
        assert len(log.producers) == 0
        assert [name for name in files.listdir(DIRECTORY) if name.endswith(".snapshot")] == []

    def test_torn_snapshot_costs_a_replay_and_nothing_else(self) -> None:
        files = MemoryFiles()
        log = open_log(files, LogConfig(segment_bytes=400))
        producer = Producer(5)
        for _ in range(20):
            log.append(*producer.batch(bytes(40)), 0)
        log.close()
        newest = max(name for name in files.listdir(DIRECTORY) if name.endswith(".snapshot"))
        file = files.open(DIRECTORY / newest, "write")
        file.truncate(len(read_file(files, DIRECTORY / newest)) // 2)
        file.close()
        again = open_log(files, LogConfig(segment_bytes=400), recovery_point=20)
        assert again.producers.check(header(19)) == 19
        assert len(read_all(again)) == 20
