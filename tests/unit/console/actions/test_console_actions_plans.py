# SPDX-License-Identifier: Apache-2.0
"""Requests to change offsets and to replay dead letters, their tokens, and the commands that do the same."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.client.cluster import Cluster
from headrace.client.tools.reset import OffsetChange
from headrace.console.actions.pending import Pending
from headrace.console.actions.replay_records import Letter, why_not
from headrace.console.actions.replay_records import parse_request as parse_replay
from headrace.console.actions.reset_request import parse_request, reset_command
from headrace.console.views.view import ViewError
from headrace.types import TopicPartition

HERE, ELSEWHERE = Cluster(bootstrap="127.0.0.1:9092"), Cluster(bootstrap="kafka:9092")


def change(partition: int, old: int | None, new: int) -> OffsetChange:
    return OffsetChange(partition=TopicPartition("orders", partition), old=old, new=new, wanted=new)


@pytest.mark.parametrize(
    ("body", "command"),
    [
        ({"strategy": {"kind": "earliest"}}, "headrace groups reset 'g 1' --to-earliest --execute"),
        (
            {
                "strategy": {"kind": "shift", "value": -5},
                "topics": [{"topic": "orders", "partitions": [2, 0]}],
            },
            "headrace groups reset 'g 1' --topic orders:0,2 --shift-by -5 --execute",
        ),
        (
            {"strategy": {"kind": "time", "value": 1_700_000_000_000}, "topics": [{"topic": "orders"}]},
            "headrace groups reset 'g 1' --topic orders --to-datetime 2023-11-14T22:13:20.000Z --execute",
        ),
        (
            {"strategy": {"kind": "offset", "value": 7}},
            "headrace groups reset 'g 1' --to-offset 7 --execute",
        ),
        (
            {"strategy": {"kind": "set", "offsets": [{"topic": "orders", "partition": 1, "offset": 3}]}},
            "printf '%s\\n' orders,1,3 | headrace groups reset 'g 1' --from-file /dev/stdin --execute",
        ),
    ],
    ids=lambda value: value["strategy"]["kind"] if isinstance(value, dict) else "",
)
def test_the_command_does_the_same(body: dict[str, Any], command: str) -> None:
    request = parse_request({"group": "g 1", **body})
    assert reset_command(request, [change(1, 5, 3)], HERE) == command


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"group": ""},
        {"group": "g"},
        {"group": "g", "strategy": {"kind": "sideways"}},
        {"group": "g", "strategy": {"kind": "offset"}},
        {"group": "g", "strategy": {"kind": "offset", "value": -1}},
        {"group": "g", "strategy": {"kind": "offset", "value": 1.5}},
        {"group": "g", "strategy": {"kind": "time", "value": None}},
        {"group": "g", "strategy": {"kind": "shift", "value": True}},
        {"group": "g", "strategy": {"kind": "set", "offsets": []}},
        {"group": "g", "strategy": {"kind": "set", "offsets": [{"topic": "t", "partition": "0"}]}},
        {"group": "g", "strategy": {"kind": "latest"}, "topics": []},
        {"group": "g", "strategy": {"kind": "latest"}, "topics": [{"topic": "t", "partitions": []}]},
    ],
    ids=str,
)
def test_wrong_requests_are_refused_with_what_to_do(body: dict[str, Any]) -> None:
    with pytest.raises(ViewError) as refused:
        parse_request(body)
    assert refused.value.status == 400
    assert refused.value.next_step


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_token_is_good_once_for_its_principal_and_for_ten_minutes() -> None:
    clock = Clock()
    pending: Pending[str] = Pending(clock)
    first, second = pending.keep(HERE, "plan"), pending.keep(HERE, "other")
    for cluster, token in ((ELSEWHERE, first), (HERE, "guess"), (HERE, None), (HERE, 5)):
        with pytest.raises(ViewError) as refused:
            pending.take(cluster, token)
        assert refused.value.status == 409
    assert pending.take(HERE, first) == "plan"
    with pytest.raises(ViewError, match="applied already"):
        pending.take(HERE, first)
    clock.now = 601
    with pytest.raises(ViewError, match="older than ten minutes"):
        pending.take(HERE, second)


def test_old_plans_make_room() -> None:
    pending: Pending[int] = Pending()
    tokens = [pending.keep(HERE, number) for number in range(600)]
    assert pending.take(HERE, tokens[-1]) == 599
    with pytest.raises(ViewError):
        pending.take(HERE, tokens[0])


def letter(topic: str | None, column: str | None = None) -> Letter:
    return Letter(
        partition=0, offset=1, topic=topic, origin_partition=0, column=column, key=None, value=b"", headers=()
    )


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (letter(None), "do not say"),
        (letter("dead"), "this topic itself"),
        (letter("__consumer_offsets"), "internal"),
        (letter("_headrace_partitioners"), "internal"),
        (letter("gone"), "does not exist"),
        (letter("orders", "value"), "holds only the value"),
    ],
)
def test_what_is_not_replayed_says_why(case: Letter, words: str) -> None:
    known = {"orders": 1, "__consumer_offsets": 1, "_headrace_partitioners": 1, "dead": 1}
    assert words in str(why_not(case, "dead", known))
    assert why_not(letter("orders"), "dead", known) is None


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topic": "dead", "records": []},
        {"topic": "dead", "records": [{"partition": 0}]},
        {"topic": "dead", "records": [{"partition": 0, "offset": True}]},
        {"topic": "dead", "records": [{"partition": 0, "offset": 1}] * 1001},
        {"topic": "dead", "error": 5},
    ],
    ids=lambda body: str(body)[:40],
)
def test_wrong_replays_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ViewError) as refused:
        parse_replay(body)
    assert refused.value.status == 400
