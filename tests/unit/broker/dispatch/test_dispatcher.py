# SPDX-License-Identifier: Apache-2.0
"""The table that ApiVersions is answered from and the handlers are one."""

from __future__ import annotations

import pytest

from headrace.wire.api_table import APIS
from headrace.wire.error_codes import ErrorCode
from headrace.wire.messages import decode_reply, encode_error_reply
from tests.harness.broker.simulated_node import SimBroker, on_a_node


def test_every_advertised_api_has_a_handler_and_no_other_does() -> None:
    async def scenario(node: SimBroker) -> None:
        assert node.broker.dispatcher.api_keys == set(APIS)

    on_a_node(scenario)


@pytest.mark.parametrize("version", range(6))
def test_a_refusal_fits_a_reply_that_has_no_room_for_a_message(version: int) -> None:
    frame = encode_error_reply(22, version, 5, ErrorCode.request_timed_out, "the store does not answer")
    correlation_id, reply = decode_reply(22, version, memoryview(frame)[4:])
    assert (correlation_id, reply.error_code) == (5, ErrorCode.request_timed_out)
