from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.handlers.api_versions import ApiVersionsHandlers, unsupported_api_versions
from headrace.broker.metrics import Metrics
from headrace.broker.network.request_context import RequestContext
from headrace.realworld import RealClock
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS, NODE_APIS
from headrace.wire.error_codes import ErrorCode
from headrace.wire.messages import decode_reply

NODE_LISTENER = "NODES"


class Asked:
    """The handler, with what it was answered."""

    def __init__(self) -> None:
        self.metrics = Metrics(RealClock())

    def ask(
        self, version: int, name: str = "test", software_version: str = "1.0", listener: str = NODE_LISTENER
    ) -> Any:
        handlers = ApiVersionsHandlers(node_listener=NODE_LISTENER, metrics=self.metrics)
        context = RequestContext(ApiKey.API_VERSIONS.value, version, 7, "c", listener, "1.2.3.4:5")
        request = SimpleNamespace(client_software_name=name, client_software_version=software_version)
        frames: list[bytes] = []
        handlers.api_versions(context, request, SimpleNamespace(send=frames.append))  # type: ignore[arg-type]
        (frame,) = frames
        correlation_id, reply = decode_reply(ApiKey.API_VERSIONS, version, memoryview(frame)[4:])
        assert correlation_id == 7
        return reply


@pytest.mark.parametrize("version", range(5))
def test_api_versions_returns_exactly_the_table(version: int) -> None:
    reply = Asked().ask(version)
    assert reply.error_code is ErrorCode.none
    assert {each.api_key: (each.min_version, each.max_version) for each in reply.api_keys} == {
        key: (api.min_version, api.max_version) for key, api in APIS.items()
    }
    if version >= 3:
        assert reply.finalized_features == ()
        assert reply.supported_features == ()


def test_clients_are_not_shown_what_only_nodes_may_ask() -> None:
    reply = Asked().ask(3, listener="CLIENTS")
    assert {each.api_key for each in reply.api_keys} == set(APIS) - NODE_APIS


def test_an_unknown_version_of_api_versions_is_answered_in_version_0_with_its_range() -> None:
    frame = unsupported_api_versions(99)
    correlation_id, reply = decode_reply(18, 0, memoryview(frame)[4:])
    assert (correlation_id, reply.error_code) == (99, ErrorCode.unsupported_version)
    assert [(each.api_key, each.min_version, each.max_version) for each in reply.api_keys] == [(18, 0, 4)]


@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("a b", "1"), ("a", "-1"), ("a", "1\n"), ("-a", "1")]
)
def test_an_illegal_software_name_is_an_invalid_request(name: str, version: str) -> None:
    asked = Asked()
    reply = asked.ask(3, name, version)
    assert (reply.error_code, reply.api_keys) == (ErrorCode.invalid_request, ())
    assert asked.metrics.clients == {}


def test_clients_are_counted_by_the_software_they_announce() -> None:
    asked = Asked()
    for _ in range(3):
        asked.ask(4, "librdkafka", "2.15.0")
    assert asked.metrics.clients == {("librdkafka", "2.15.0"): 3}
