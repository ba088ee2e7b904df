# SPDX-License-Identifier: Apache-2.0
"""The throttle time of an encoded reply is where every version of every API has it."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS
from headrace.wire.kio_codec.schema import field_names, message_class
from headrace.wire.messages import decode_reply, encode_reply
from headrace.wire.throttle_time import read_throttle_ms, with_throttle_ms

OWN_WRITERS = (ApiKey.PRODUCE, ApiKey.FETCH)
VERSIONS = [(key, version) for key, api in APIS.items() for version in api.accepted if key not in OWN_WRITERS]


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_the_throttle_time_is_read_and_replaced(key: int, version: int) -> None:
    names = field_names(message_class(APIS[key].name, version, "response"), ()) or frozenset()
    fields: dict[str, Any] = {"throttle_time": 0} if "throttle_time" in names else {}
    if key == ApiKey.API_VERSIONS:
        fields["api_keys"] = [{"api_key": n, "min_version": 0, "max_version": 4} for n in range(40)]
        fields["finalized_features_epoch"] = 7
    frame = encode_reply(key, version, 5, fields)
    changed = with_throttle_ms(key, version, frame, 12_345)
    if "throttle_time" not in names:
        assert changed == frame
        assert read_throttle_ms(key, version, frame) == 0
        return
    assert changed == encode_reply(key, version, 5, {**fields, "throttle_time": 12_345})
    assert read_throttle_ms(key, version, changed) == 12_345
    _, reply = decode_reply(key, version, memoryview(changed)[4:])
    assert reply.throttle_time.total_seconds() == 12.345
