# SPDX-License-Identifier: Apache-2.0
"""Group events in words, and durations as people write and read them."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from headrace.cli.durations import human_ms, parse_duration_ms, seconds_text
from headrace.cli.groups.event_text import sentence, short_member
from headrace.client.tools.group_events import GroupEvent

FIRST = "worker-05b5a0c2-442e-44df-8cc8-7806d7d26850"
SECOND = "worker-25ab95c3-0925-4ed2-bf95-6e1e35beaf09"
MOVE = "orders-3 worker-05b5a0c2 → worker-25ab95c3"


@pytest.mark.row("D21")
@pytest.mark.parametrize(
    ("kind", "details", "said"),
    [
        (
            "join",
            {"member_id": FIRST, "client_id": "worker", "client_host": "/10.0.0.7", "instance_id": None},
            "worker-05b5a0c2 joined from 10.0.0.7",
        ),
        ("join", {"member_id": FIRST, "instance_id": "i1"}, "worker-05b5a0c2 joined as static member i1"),
        (
            "rejoin",
            {"member_id": SECOND, "instance_id": "i1", "replaces": FIRST},
            "worker-25ab95c3 came back as static member i1, replacing worker-05b5a0c2",
        ),
        (
            "leave",
            {"member_id": FIRST, "reason": "silent for 6000 ms"},
            "worker-05b5a0c2 left: silent for 6000 ms",
        ),
        ("leave", {"member_id": FIRST, "reason": "not provided"}, "worker-05b5a0c2 left"),
        (
            "rebalance",
            {"reason": f"adding new member {FIRST}; client reason: not provided"},
            "rebalance started: adding new member worker-05b5a0c2",
        ),
        (
            "rebalance",
            {"generation": 2, "reason": f"removing member {FIRST} on heartbeat expiration"},
            "rebalance started: removing member worker-05b5a0c2 on heartbeat expiration",
        ),
        (
            "assigned",
            {
                "took_ms": 420,
                "members": 2,
                "moved_count": 1,
                "moved": [["orders-3", FIRST, SECOND]],
                "given": 2,
                "taken": 0,
            },
            f"partitions assigned to 2 members after 420 ms: 1 moved ({MOVE}), 2 assigned",
        ),
        ("assigned", {"took_ms": 61_000, "members": 1}, "partitions assigned to 1 member after 1 min 1 s"),
        ("target", {"epoch": 4}, "new target assignment (epoch 4): nothing moves"),
        (
            "target",
            {"epoch": 4, "moved_count": 30, "moved": []},
            "new target assignment (epoch 4): 30 moved",
        ),
        (
            "reconcile",
            {"member_id": FIRST, "assigned": 1, "revoking": 2},
            "worker-05b5a0c2 owns 1 partition, 2 still to revoke",
        ),
        ("empty", {"generation": 3}, "the group is empty"),
        ("commit", {"member_id": FIRST, "partitions": 3}, "worker-05b5a0c2 committed 3 partitions"),
        ("commit", {"member_id": "", "partitions": 1}, "a consumer without membership committed 1 partition"),
        ("commit", {"partitions": 2, "records": 1500}, "committed 2 partitions, +1,500 records"),
        (
            "commit",
            {"member_id": FIRST, "partitions": 2, "offsets": [["orders", 0, 129], ["orders", 1, 7]]},
            "worker-05b5a0c2 committed orders-0 at 129, orders-1 at 7",
        ),
        (
            "commit",
            {"member_id": FIRST, "partitions": 30, "offsets": [["t", number, 5] for number in range(20)]},
            "worker-05b5a0c2 committed t-0 at 5, t-1 at 5, t-2 at 5, t-3 at 5 and 26 more",
        ),
        (
            "offsets_reset",
            {"partitions": 1, "offsets": [["orders", 0, 0]]},
            "offsets of 1 partition were reset: orders-0 at 0",
        ),
        (
            "first_fetch",
            {"member_id": FIRST, "count": 1, "topic": "orders", "partition": 2, "offset": 7},
            "worker-05b5a0c2 fetched first from orders-2 at offset 7",
        ),
        (
            "first_fetch",
            {"member_id": FIRST, "count": 30, "partitions": [["orders-0", 7], ["orders-1", 9]]},
            "worker-05b5a0c2 fetched first from 30 partitions: orders-0, orders-1 …",
        ),
        (
            "upgrade",
            {"epoch": 3, "members": 2},
            "the group uses the consumer protocol (KIP-848) now, with 2 members",
        ),
        (
            "downgrade",
            {"generation": 3, "members": 1},
            "the group uses the classic protocol again, with 1 member",
        ),
        ("deleted", {}, "the group was deleted"),
        ("state", {"from": "Stable", "to": "Empty"}, "now Empty, was Stable"),
        ("state", {"from": None, "to": None}, "the group does not exist"),
        ("state", {"from": "Empty", "to": None}, "the group was deleted"),
        (
            "offsets_expired",
            {"partitions": 1},
            "offsets of 1 partition expired: not used for the retention time",
        ),
        ("offsets_reset", {"partitions": 4}, "offsets of 4 partitions were reset"),
        (
            "offsets_deleted",
            {"partitions": 1, "reason": "their topic was deleted"},
            "offsets of 1 partition were deleted: their topic was deleted",
        ),
        ("something_new", {"a": 1}, "something_new a=1"),
    ],
)
def test_event_texts(kind: str, details: dict[str, Any], said: str) -> None:
    assert sentence(GroupEvent(at_ms=0, kind=kind, details=details)) == said


def test_member_ids_are_shortened_and_stay_distinct() -> None:
    assert short_member(FIRST) == "worker-05b5a0c2"
    assert short_member("05b5a0c2-442e-44df-8cc8-7806d7d26850") == "05b5a0c2"
    assert short_member("tpRKi4UmRuuMLAm9cNLI4g") == "tpRKi4Um…"
    assert short_member("mine") == "mine"


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (3_440, "3.4 s"),
        (59_990, "60.0 s"),
        (125_000, "2 min 5 s"),
        (3_780_000, "1 h 3 min"),
        (187_200_000, "2 d 4 h"),
    ],
)
def test_durations_for_people(duration_ms: int, text: str) -> None:
    assert human_ms(duration_ms) == text


def test_durations_for_programs() -> None:
    assert seconds_text(3_441) == "3.441"


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("0s", 0),
        ("300ms", 300),
        ("2.5s", 2_500),
        ("15m", 900_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
        ("PT1H30M", 5_400_000),
        ("P2DT1S", 172_801_000),
    ],
)
def test_durations_as_people_write_them(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text, "--over") == duration_ms


@pytest.mark.parametrize("text", ["", "5", "P", "PT", "-5s", "1w", "five"])
def test_an_invalid_duration_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="use 30s, 15m"):
        parse_duration_ms(text, "--over")
