# SPDX-License-Identifier: Apache-2.0
"""Scrapes of several cores as one text that Prometheus takes."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from headrace.broker.reporting.merged_metrics import family_text, merge_scrapes

FIRST = """\
# HELP a_total Counts.
# TYPE a_total counter
a_total 1.0
# HELP b Depends.
# TYPE b gauge
b{topic="x y{z",api="Fetch"} 2.0
"""
SECOND = """\
# HELP a_total Counts.
# TYPE a_total counter
a_total 5.0
# HELP c Only here.
# TYPE c histogram
c_bucket{le="+Inf"} 3.0
c_count 3.0
c_sum 0.5
"""


def test_each_sample_names_its_core_and_each_family_stands_once() -> None:
    assert (
        merge_scrapes({0: FIRST, 1: SECOND})
        == """\
# HELP a_total Counts.
# TYPE a_total counter
a_total{core="0"} 1.0
a_total{core="1"} 5.0
# HELP b Depends.
# TYPE b gauge
b{core="0",topic="x y{z",api="Fetch"} 2.0
# HELP c Only here.
# TYPE c histogram
c_bucket{core="1",le="+Inf"} 3.0
c_count{core="1"} 3.0
c_sum{core="1"} 0.5
"""
    )


def test_the_parser_of_prometheus_reads_what_is_merged() -> None:
    own = family_text("up", "gauge", "Up.", [({"core": 0, "node": 1}, 1)])
    families = {
        each.name: each for each in text_string_to_metric_families(own + merge_scrapes({0: FIRST, 1: SECOND}))
    }
    assert [(sample.labels, sample.value) for sample in families["a"].samples] == [
        ({"core": "0"}, 1.0),
        ({"core": "1"}, 5.0),
    ]
    assert families["b"].samples[0].labels == {"core": "0", "topic": "x y{z", "api": "Fetch"}
    assert families["up"].samples[0].labels == {"core": "0", "node": "1"}


def test_a_core_without_an_answer_leaves_the_others() -> None:
    assert 'core="1"' not in merge_scrapes({0: FIRST})
    assert merge_scrapes({}) == ""
