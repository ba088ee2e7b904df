# SPDX-License-Identifier: Apache-2.0
"""Which batches a sink takes for a repetition, which for new ones, and which it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.client.errors import ClientError
from pyspark_headrace.replays import BatchIdentity, ReplayRule, advances, fingerprint, identify_batch

LAST = BatchIdentity(number=7, offsets=1)
RULE = ReplayRule(sink="sink 'orders'", numbered_by="checkpoint")


def test_the_next_batch_is_new() -> None:
    assert not RULE.is_replay(BatchIdentity(number=8, offsets=2), LAST)


def test_the_same_number_with_the_same_offsets_is_a_replay() -> None:
    assert RULE.is_replay(BatchIdentity(number=7, offsets=1), LAST)


def test_without_a_fingerprint_of_the_sink_the_number_decides() -> None:
    assert RULE.is_replay(BatchIdentity(number=7, offsets=2), BatchIdentity(number=7))


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (
            BatchIdentity(number=6, offsets=1),
            "batch 7 of .* goes on with batch 6.*batches 6 to 7",
        ),
        (BatchIdentity(number=7, offsets=2), "whose offsets differ .* older checkpoint was restored"),
        (BatchIdentity(number=7), r"could not be read; .*checkpointLocation.*replayCheck"),
    ],
    ids=["behind", "differs", "unverified"],
)
def test_what_would_lose_rows_is_refused_by_name(batch: BatchIdentity, message: str) -> None:
    with pytest.raises(ClientError, match=rf"sink 'orders' has .*{message}"):
        RULE.is_replay(batch, LAST)


def test_the_number_alone_decides_where_that_was_asked_for() -> None:
    rule = ReplayRule(sink="sink", numbered_by="checkpoint", check="number")
    assert rule.is_replay(BatchIdentity(number=7, offsets=2), LAST)
    with pytest.raises(ClientError, match="goes on with batch 6"):
        rule.is_replay(BatchIdentity(number=6), LAST)


def test_a_batch_without_rows_does_not_carry_an_older_checkpoint_past_the_sink() -> None:
    RULE.check_empty(BatchIdentity(number=8, offsets=9), LAST, advances=True)
    RULE.check_empty(LAST, LAST, advances=True)
    RULE.check_empty(BatchIdentity(number=7, offsets=2), LAST, advances=False)
    RULE.check_empty(BatchIdentity(number=7), LAST, advances=True)
    with pytest.raises(ClientError, match="goes on with batch 6"):
        RULE.check_empty(BatchIdentity(number=6), LAST, advances=False)
    with pytest.raises(ClientError, match="whose offsets differ"):
        RULE.check_empty(BatchIdentity(number=7, offsets=2), LAST, advances=True)


def test_a_batch_advances_when_its_sources_do(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for number, end in enumerate("aabb"):
        (tmp_path / f"offsets/{number}").write_text(f"v1\n{number}\n{end}")
    assert [advances(number, str(tmp_path)) for number in range(5)] == [False, False, True, False, False]
    assert not advances(2, None)


@pytest.mark.parametrize("name", ["batchId", "txnVersion"])
def test_numbers_of_batch_writes_go_up(name: str) -> None:
    rule = ReplayRule(sink="sink", numbered_by=name)  # type: ignore[arg-type]
    assert rule.is_replay(BatchIdentity(number=7), LAST)
    with pytest.raises(ClientError, match=f"has {name} 7 already.*count {name} upwards"):
        rule.is_replay(BatchIdentity(number=6), LAST)


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_a_batch_is_known_by_its_entry_in_the_checkpoint(tmp_path: Path, prefix: str) -> None:
    folder = tmp_path / "a checkpoint"
    (folder / "offsets").mkdir(parents=True)
    (folder / "offsets/3").write_bytes(b"v1")
    assert identify_batch(3, f"{prefix}{folder}") == BatchIdentity(number=3, offsets=fingerprint(b"v1"))


@pytest.mark.parametrize("where", [None, "no/such/folder", "nothing://there", "file://host/elsewhere"])
def test_a_batch_whose_entry_cannot_be_read_has_no_fingerprint(where: str | None) -> None:
    assert identify_batch(3, where) == BatchIdentity(number=3)


def test_a_batch_knows_where_its_sources_end(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets/3").write_text('v1\n{"batchWatermarkMs":0}\n{"version":1}\n-')
    assert identify_batch(3, str(tmp_path)).sources == ('{"version":1}', "-")


def test_ends_too_long_for_a_record_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets/3").write_text("v1\n{}\n" + "x" * (300 << 10))
    batch = identify_batch(3, str(tmp_path))
    assert batch.sources == ()
    assert batch.offsets is not None


def test_fingerprints_fit_into_a_table() -> None:
    assert 0 < fingerprint(b"v1") < 1 << 56
    assert fingerprint(b"v1") != fingerprint(b"v2")
