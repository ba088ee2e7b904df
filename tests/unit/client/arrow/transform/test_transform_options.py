# SPDX-License-Identifier: Apache-2.0
"""Options of a transformation: what is refused at once, and what is written by default."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.client.arrow.transform.options import TransformRequest
from headrace.client.errors import ClientError


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"until": "latest"}, r"until='latest' is not served; use until=\"end\""),
        ({"limit": 0}, "limit=0 is too small"),
        ({"commit_records": 0}, "commit_records=0 is too small"),
        ({"commit_interval_ms": 0}, "commit_interval_ms=0 is too small"),
        ({"write": {"acks": 1}}, "acks= is not an option of write here; give it to transform"),
        ({"write": {"transactional_id": "x"}}, "transactional_id= is not an option of write here"),
    ],
)
def test_invalid_options_are_refused(options: Any, reason: str) -> None:
    with pytest.raises(ClientError, match=reason):
        TransformRequest("in", "out", group="g", **options)


@pytest.mark.parametrize(
    ("options", "transactional_id"),
    [
        ({}, "g"),
        ({"instance_id": "one"}, "g-one"),
        ({"instance_id": "one", "transactional_id": "mine"}, "mine"),
    ],
)
def test_the_transactional_id_is_the_same_for_every_run_of_a_member(
    options: Any, transactional_id: str
) -> None:
    request = TransformRequest("in", "out", group="g", **options)
    assert request.transaction().transactional_id == transactional_id


def test_the_partition_of_a_result_is_written_only_when_asked_for() -> None:
    assert TransformRequest("in", "out", group="g").write == {"progress": False, "partition": None}
    told = TransformRequest("in", "out", group="g", write={"key": None, "partition": "partition"})
    assert told.write == {"progress": False, "key": None, "partition": "partition"}
