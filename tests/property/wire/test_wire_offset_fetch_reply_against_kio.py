# SPDX-License-Identifier: Apache-2.0
"""OffsetFetch's own code for replies against kio and the general codec: the same bytes in every version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS
from headrace.wire.messages import encode_reply
from headrace.wire.requests.write_reply import WRITERS, write_reply
from tests.property.wire.kio_oracle import (
    EVERY_VERSION,
    QUICK,
    class_of,
    decode,
    entities,
    name_of,
    reply_body,
    tree_of,
)

every_version = pytest.mark.parametrize(
    "case", [case for case in EVERY_VERSION if case[0] in WRITERS], ids=name_of
)


@every_version
def test_any_reply_is_written_as_by_the_general_codec(case: tuple[int, int]) -> None:
    key, version = case
    cls = class_of(case, "response")

    @QUICK
    @given(entities(cls), st.integers(-(2**31), 2**31 - 1))
    def check(reply: Any, correlation_id: int) -> None:
        fields = tree_of(reply)
        frame = write_reply(key, version, correlation_id, fields)
        assert frame == encode_reply(key, version, correlation_id, fields)
        assert decode(cls, reply_body(cls, frame, correlation_id)) == reply

    check()


@every_version
def test_a_reply_without_a_throttle_time_has_none(case: tuple[int, int]) -> None:
    key, version = case
    fields = {"topics": [], "groups": [], "error_code": 0}
    assert write_reply(key, version, 7, fields) == encode_reply(key, version, 7, fields)


def test_every_version_of_offset_fetch_that_is_served_is_compared() -> None:
    compared = {version for key, version in EVERY_VERSION if key == ApiKey.OFFSET_FETCH}
    assert compared == set(APIS[ApiKey.OFFSET_FETCH].accepted)
