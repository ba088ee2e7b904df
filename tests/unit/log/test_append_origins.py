# SPDX-License-Identifier: Apache-2.0
"""What is checked before an append, by its origin: a client, a coordinator of this node, or the leader."""

from __future__ import annotations

import pytest

from headrace.errors import ApiError
from headrace.log.producers.markers import EndTransactionMarker, build_marker, read_marker
from headrace.log.producers.state import ProducerState
from headrace.log.producers.verification import VerificationGuard
from headrace.wire.batch import BatchHeader, read_header
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from tests.harness.batches.log_tools import NOW_MS

DAY_MS = 86_400_000
PRODUCER = 5
COMMIT = EndTransactionMarker(commits=True, coordinator_epoch=3)
ABORT = EndTransactionMarker(commits=False, coordinator_epoch=3)


def header(sequence: int, *, epoch: int = 0, count: int = 1, transactional: bool = True) -> BatchHeader:
    records = [Record(delta, NOW_MS, b"k", b"v") for delta in range(count)]
    data = build_batch(
        records,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    return read_header(data)


def control(epoch: int = 0) -> BatchHeader:
    return read_header(build_marker(COMMIT, producer_id=PRODUCER, producer_epoch=epoch, timestamp=NOW_MS))


class Partition:
    """Producer state that is appended to."""

    def __init__(self) -> None:
        self.state = ProducerState(expiration_ms=DAY_MS, now_ms=NOW_MS)
        self.end = 0

    def write(self, batch: BatchHeader, marker: EndTransactionMarker | None = None) -> None:
        self.state.update(batch, self.end, marker)
        self.end += batch.last_offset_delta + 1

    def verified(self, batch: BatchHeader, *, version_2: bool = False) -> VerificationGuard:
        guard = self.state.begin_verification(batch, begins_at_zero=version_2)
        assert guard is not None
        return guard

    def refusal(self, batch: BatchHeader, guard: VerificationGuard | None = None) -> ErrorCode:
        with pytest.raises(ApiError) as raised:
            self.state.check(batch, guard)
        return raised.value.code

    def begin(self, epoch: int = 0, sequence: int = 0) -> None:
        batch = header(sequence, epoch=epoch)
        assert self.state.check(batch, self.verified(batch)) is None
        self.write(batch)


class TestClients:
    def test_first_batch_of_a_transaction_needs_a_guard_and_later_ones_do_not(self) -> None:
        log = Partition()
        assert log.refusal(header(0)) == ErrorCode.invalid_txn_state
        log.begin()
        assert log.state.check(header(1)) is None
        assert log.state.begin_verification(header(1)) is None, "it is open: nobody needs to be asked"

    def test_epoch_comes_before_the_guard_and_the_guard_before_the_sequence(self) -> None:
        log = Partition()
        log.begin(epoch=2)
        log.write(control(epoch=2), COMMIT)
        assert log.refusal(header(9, epoch=1)) == ErrorCode.invalid_producer_epoch
        assert log.refusal(header(9, epoch=2)) == ErrorCode.invalid_txn_state
        guard = log.verified(header(9, epoch=2))
        assert log.refusal(header(9, epoch=2), guard) == ErrorCode.out_of_order_sequence_number

    def test_duplicate_of_an_ended_transaction_is_answered_without_a_guard(self) -> None:
        log = Partition()
        log.begin()
        log.write(control(), COMMIT)
        assert log.state.check(header(0)) == 0

    @pytest.mark.parametrize("marker", [COMMIT, ABORT])
    def test_any_marker_drops_the_guard(self, marker: EndTransactionMarker) -> None:
        log = Partition()
        guard = log.verified(header(0))
        log.write(control(), marker)
        assert log.refusal(header(0), guard) == ErrorCode.invalid_txn_state
        again = log.verified(header(0))
        assert again is not guard
        assert log.refusal(header(0), guard) == ErrorCode.invalid_txn_state
        assert log.state.check(header(0), again) is None

    def test_first_batch_uses_its_guard_up(self) -> None:
        log = Partition()
        guard = log.verified(header(0))
        log.write(header(0))
        log.write(control(), COMMIT)
        assert log.refusal(header(1), guard) == ErrorCode.invalid_txn_state

    def test_truncation_drops_guards(self) -> None:
        log = Partition()
        guard = log.verified(header(0))
        log.state.restore(())
        assert log.refusal(header(0), guard) == ErrorCode.invalid_txn_state

    def test_guards_expire_with_producers(self) -> None:
        log = Partition()
        guard = log.verified(header(0))
        log.state.expire(NOW_MS + DAY_MS - 1)
        assert log.state.check(header(0), guard) is None
        log.state.expire(NOW_MS + DAY_MS)
        assert log.refusal(header(0), guard) == ErrorCode.invalid_txn_state

    def test_batches_that_wait_for_one_answer_are_written_in_order(self) -> None:
        log = Partition()
        guard = log.verified(header(4))
        assert log.verified(header(7)) is guard
        assert log.refusal(header(7), guard) == ErrorCode.out_of_order_sequence_number
        assert log.state.check(header(4), guard) is None

    def test_version_2_begins_at_sequence_zero(self) -> None:
        log = Partition()
        guard = log.verified(header(4), version_2=True)
        assert log.refusal(header(4), guard) == ErrorCode.out_of_order_sequence_number
        log = Partition()
        assert log.state.check(header(4), log.verified(header(4))) is None

    def test_transaction_of_an_older_epoch_is_none_of_the_new_epoch(self) -> None:
        log = Partition()
        log.begin(epoch=0)
        assert log.refusal(header(0, epoch=1)) == ErrorCode.invalid_txn_state

    def test_plain_batch_in_an_open_transaction_is_refused(self) -> None:
        log = Partition()
        log.begin()
        assert log.refusal(header(1, transactional=False)) == ErrorCode.invalid_txn_state
        assert log.refusal(header(7, transactional=False)) == ErrorCode.out_of_order_sequence_number
        log.write(control(), COMMIT)
        assert log.state.check(header(1, transactional=False)) is None


class TestCoordinators:
    def test_offsets_need_no_sequence_and_are_never_duplicates(self) -> None:
        log = Partition()
        for _ in range(2):
            batch = header(-1)
            log.state.check_own(batch)
            log.write(batch)
        assert log.end == 2

    def test_offsets_of_an_older_epoch_are_refused(self) -> None:
        log = Partition()
        log.write(header(-1, epoch=4))
        with pytest.raises(ApiError) as raised:
            log.state.check_own(header(-1, epoch=3))
        assert raised.value.code == ErrorCode.invalid_producer_epoch

    def test_guard_that_a_marker_dropped_is_refused(self) -> None:
        log = Partition()
        guard = log.verified(header(-1))
        log.state.check_own(header(-1), guard)
        log.write(control(), ABORT)
        with pytest.raises(ApiError) as raised:
            log.state.check_own(header(-1), guard)
        assert raised.value.code == ErrorCode.invalid_txn_state


class TestMarkers:
    def check(self, log: Partition, epoch: int, version: int, coordinator_epoch: int = 3) -> ErrorCode:
        marker = EndTransactionMarker(commits=True, coordinator_epoch=coordinator_epoch)
        try:
            log.state.check_marker(control(epoch), marker, version)
        except ApiError as error:
            return error.code
        return ErrorCode.none

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_producer_that_is_unknown_may_be_ended(self, version: int) -> None:
        assert self.check(Partition(), 0, version) is ErrorCode.none

    @pytest.mark.parametrize("version", [0, 1])
    def test_before_version_2_the_epoch_is_not_lower(self, version: int) -> None:
        log = Partition()
        log.begin(epoch=7)
        assert self.check(log, 6, version) is ErrorCode.invalid_producer_epoch
        assert self.check(log, 7, version) is ErrorCode.none
        assert self.check(log, 8, version) is ErrorCode.none

    def test_version_2_needs_a_higher_epoch_or_repeats_a_marker_that_was_written(self) -> None:
        log = Partition()
        log.begin(epoch=7)
        assert self.check(log, 6, 2) is ErrorCode.invalid_producer_epoch
        assert self.check(log, 7, 2) is ErrorCode.invalid_producer_epoch
        assert self.check(log, 8, 2) is ErrorCode.none
        log.write(control(8), COMMIT)
        assert self.check(log, 8, 2) is ErrorCode.none, "a retry (KAFKA-19999)"
        log.begin(epoch=8)
        assert self.check(log, 8, 2) is ErrorCode.invalid_producer_epoch, "late, in the next transaction"

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_older_coordinator_is_fenced(self, version: int) -> None:
        log = Partition()
        log.begin(epoch=0)
        log.write(control(1), COMMIT)
        fenced = ErrorCode.transaction_coordinator_fenced
        assert self.check(log, 2, version, coordinator_epoch=2) is fenced
        assert self.check(log, 2, version, coordinator_epoch=3) is ErrorCode.none
        assert self.check(log, 0, version, coordinator_epoch=2) is ErrorCode.invalid_producer_epoch

    @pytest.mark.parametrize("commits", [True, False])
    def test_marker_has_kafkas_bytes(self, commits: bool) -> None:
        marker = EndTransactionMarker(commits=commits, coordinator_epoch=0x0102)
        data = build_marker(marker, producer_id=9, producer_epoch=4, timestamp=NOW_MS)
        made = read_header(data)
        assert (made.attributes, made.record_count, made.base_sequence) == (0x30, 1, -1)
        assert (made.producer_id, made.producer_epoch, made.max_timestamp) == (9, 4, NOW_MS)
        # Length, attributes, timestamp and offset deltas, key and value with their lengths, no headers.
        kind = "01" if commits else "00"
        record = f"20 00 00 00 08 0000 00{kind} 0c 0000 00000102 00"
        assert data[61:] == bytes.fromhex(record)
        assert read_marker(memoryview(data)) == marker
