# SPDX-License-Identifier: Apache-2.0
"""Every version of every served message, both ways, against kio."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.api_table import read_request_header
from headrace.wire.messages import decode_reply, decode_request, encode_reply, encode_request
from tests.property.wire.kio_oracle import (
    EVERY_VERSION,
    QUICK,
    add_unknown_tags,
    class_of,
    decode,
    encode,
    entities,
    filled,
    name_of,
    reply_body,
    tree_of,
    without_tags,
)

every_version = pytest.mark.parametrize("case", EVERY_VERSION, ids=name_of)
flexible_versions = pytest.mark.parametrize(
    "case", [case for case in EVERY_VERSION if class_of(case, "request").__flexible__], ids=name_of
)


def read_request(case: tuple[int, int], body: bytes, *, before: bytes = b"", after: bytes = b"") -> Any:
    """Decodes the body out of the middle of a buffer, as the broker does."""
    view = memoryview(before + body + after)
    return decode_request(*case, view, len(before), len(before) + len(body))


@every_version
def test_a_request_that_kio_writes_is_read(case: tuple[int, int]) -> None:
    @QUICK
    @given(entities(class_of(case, "request")), st.binary(max_size=5), st.binary(max_size=5))
    def check(request: Any, before: bytes, after: bytes) -> None:
        assert read_request(case, encode(request), before=before, after=after) == request

    check()


@every_version
def test_a_reply_that_we_write_is_read_by_kio(case: tuple[int, int]) -> None:
    cls = class_of(case, "response")

    @QUICK
    @given(entities(cls), st.integers(-(2**31), 2**31 - 1))
    def check(reply: Any, correlation_id: int) -> None:
        frame = encode_reply(*case, correlation_id, tree_of(reply))
        assert decode(cls, reply_body(cls, frame, correlation_id)) == reply
        assert decode_reply(*case, memoryview(frame)[4:]) == (correlation_id, reply)

    check()


@every_version
def test_a_request_that_we_write_is_read_by_kio(case: tuple[int, int]) -> None:
    cls = class_of(case, "request")

    @QUICK
    @given(entities(cls), st.none() | st.text(max_size=20))
    def check(request: Any, client_id: str | None) -> None:
        frame = encode_request(*case, 7, client_id, tree_of(request))
        header = read_request_header(memoryview(frame), 4, len(frame))
        assert header[:4] == (*case, 7, client_id)
        assert decode(cls, frame[header.body_position :]) == request

    check()


@every_version
def test_an_empty_tree_gives_the_defaults_of_the_schema(case: tuple[int, int]) -> None:
    cls = class_of(case, "response")
    frame = encode_reply(*case, 1, {})
    assert decode_reply(*case, memoryview(frame)[4:])[1] == decode(cls, reply_body(cls, frame, 1))


@every_version
def test_a_full_tree_is_read_back(case: tuple[int, int]) -> None:
    cls = class_of(case, "response")
    frame = encode_reply(*case, 1, tree_of(filled(cls)))
    assert decode(cls, reply_body(cls, frame, 1)) == filled(cls)


@flexible_versions
def test_unknown_tagged_fields_are_skipped(case: tuple[int, int]) -> None:
    @QUICK
    @given(entities(class_of(case, "request")), st.binary(min_size=1, max_size=200))
    def check(request: Any, unknown: bytes) -> None:
        assert read_request(case, encode(add_unknown_tags(request, unknown))) == without_tags(request)

    check()


@every_version
def test_bytes_after_the_body_are_ignored_as_kafka_does(case: tuple[int, int]) -> None:
    request = filled(class_of(case, "request"))
    assert read_request(case, encode(request) + b"later") == request
