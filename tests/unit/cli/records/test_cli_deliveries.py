# SPDX-License-Identifier: Apache-2.0
"""Delivery reports of `headrace produce` are in the order of the input."""

from __future__ import annotations

import io
import json

from headrace.cli.output import Output
from headrace.cli.records.deliveries import Deliveries
from headrace.client.errors import ClientError
from headrace.client.tools.producer import Delivery


def _report(number: int, *, error: ClientError | None = None) -> Delivery:
    return Delivery(number=number, key=f"k{number}".encode(), partition=number % 2, offset=7, error=error)


def _deliveries(
    *, as_json: bool = False, verbose: bool = True
) -> tuple[Deliveries, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    output = Output(as_json=as_json, stdout=out, stderr=err)
    return Deliveries(output, "t", verbose=verbose), out, err


def test_lines_are_in_the_order_of_the_input_with_their_keys() -> None:
    deliveries, out, _ = _deliveries()
    for number in (1, 3, 0, 2):
        deliveries.add(_report(number))
        assert len(out.getvalue().splitlines()) == {1: 0, 3: 0, 0: 2, 2: 4}[number], "as early as possible"
    assert out.getvalue() == "0\t7\tk0\n1\t7\tk1\n0\t7\tk2\n1\t7\tk3\n"


def test_a_record_without_a_report_does_not_hold_back_the_others_at_the_end() -> None:
    deliveries, out, err = _deliveries()
    deliveries.add(_report(1))
    deliveries.finish(unknown=1)
    assert out.getvalue() == "1\t7\tk1\n"
    assert "Sent 1 record to 't'" in err.getvalue()
    assert "1 failed, 1 of them unconfirmed" in err.getvalue()


def test_failures_keep_their_place_among_the_events() -> None:
    deliveries, out, _ = _deliveries(as_json=True)
    deliveries.topic_created(2)
    deliveries.add(_report(1))
    deliveries.add(_report(0, error=ClientError("too large")))
    deliveries.finish(unknown=0)
    events = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(event["event"], event.get("record"), event.get("key")) for event in events] == [
        ("failed", 1, "k0"),
        ("delivered", 2, "k1"),
        ("summary", None, None),
    ]
    assert (events[-1]["created"], events[-1]["sent"], events[-1]["failed"]) == (True, 1, 1)


def test_a_topic_that_the_broker_created_is_reported() -> None:
    deliveries, out, err = _deliveries(verbose=False)
    deliveries.topic_created(3)
    assert (out.getvalue(), err.getvalue()) == ("", "Created topic 't' with 3 partitions.\n")
