# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from kio.serial import entity_writer

from headrace.broker.handlers.api_versions import (
    ApiVersionsHandlers,
    advertised,
    unsupported_api_versions,
)
from headrace.broker.metrics import Metrics
from headrace.broker.network.request_context import RequestContext
from headrace.realworld import RealClock
from headrace.types import ClusterView, FinalizedFeatures
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS, NODE_APIS, SPOKEN_APIS
from headrace.wire.error_codes import ErrorCode
from headrace.wire.messages import decode_reply

NODE_LISTENER = "NODES"
TRANSACTION_APIS = {
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
}


def at_level(transaction_version: int, epoch: int = 3) -> ClusterView:
    features = FinalizedFeatures(epoch=epoch, levels={"transaction.version": transaction_version})
    return ClusterView(
        version=1, cluster_id="c", finalized_features=features, transaction_version=transaction_version
    )


class Asked:
    """The handler, with what it was answered."""

    def __init__(self) -> None:
        self.metrics = Metrics(RealClock())
        self.cluster = SimpleNamespace(view=at_level(2))
        self.handlers = ApiVersionsHandlers(
            cluster=self.cluster,  # type: ignore[arg-type]
            node_listener=NODE_LISTENER,
            metrics=self.metrics,
        )

    def ask(
        self, version: int, name: str = "test", software_version: str = "1.0", listener: str = NODE_LISTENER
    ) -> Any:
        context = RequestContext(ApiKey.API_VERSIONS.value, version, 7, "c", listener, "1.2.3.4:5")
        request = SimpleNamespace(client_software_name=name, client_software_version=software_version)
        self.frames: list[bytes] = []
        send = SimpleNamespace(send=self.frames.append)
        self.handlers.api_versions(context, request, send)  # type: ignore[arg-type]
        (frame,) = self.frames
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


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("level", [1, 2])
def test_the_finalized_level_is_told_with_its_epoch(version: int, level: int) -> None:
    asked = Asked()
    asked.cluster.view = at_level(level, epoch=7)
    reply = asked.ask(version)
    assert reply.finalized_features_epoch == 7
    (feature,) = reply.finalized_features
    assert (feature.name, feature.min_version_level, feature.max_version_level) == (
        "transaction.version",
        level,
        level,
    )


def test_a_feature_at_level_0_is_not_among_the_finalized_ones() -> None:
    asked = Asked()
    asked.cluster.view = at_level(0, epoch=8)
    reply = asked.ask(4)
    assert (reply.finalized_features, reply.finalized_features_epoch) == ((), 8)


def test_a_change_of_the_level_is_told_by_the_next_answer() -> None:
    asked = Asked()
    told = []
    for level, epoch in ((2, 0), (0, 1), (2, 2), (1, 3)):
        asked.cluster.view = at_level(level, epoch)
        reply = asked.ask(4)
        told.append((sum(each.max_version_level for each in reply.finalized_features), epoch))
        assert reply.finalized_features_epoch == epoch
    assert told == [(2, 0), (0, 1), (2, 2), (1, 3)]


def test_supported_levels_are_told_from_version_4_on_as_by_apache_kafka() -> None:
    """A client of version 3 may fail on a feature whose lowest level is 0 (KAFKA-17492)."""
    asked = Asked()
    assert asked.ask(3).supported_features == ()
    (feature,) = asked.ask(4).supported_features
    assert (feature.name, feature.min_version, feature.max_version) == ("transaction.version", 0, 2)


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("level", [0, 2])
def test_the_bytes_are_those_of_kio(version: int, level: int) -> None:
    asked = Asked()
    asked.cluster.view = at_level(level)
    reply = asked.ask(version)
    written = io.BytesIO()
    entity_writer(type(reply))(written, reply)
    assert asked.frames[0][8:] == written.getvalue()


def test_without_transactions_none_of_their_apis_is_shown_to_clients() -> None:
    shown = advertised(SPOKEN_APIS.values(), for_nodes=False, transaction_version=0)
    assert {api.key for api in shown} == set(SPOKEN_APIS) - NODE_APIS - TRANSACTION_APIS


def test_nodes_are_shown_what_they_ask_each_other_once_the_level_rises() -> None:
    """They ask for versions when they connect, and not again."""
    shown = advertised(SPOKEN_APIS.values(), for_nodes=True, transaction_version=0)
    hidden = set(SPOKEN_APIS) - {api.key for api in shown}
    assert hidden == TRANSACTION_APIS - {ApiKey.ADD_PARTITIONS_TO_TXN}


@pytest.mark.parametrize("level", [1, 2])
def test_with_transactions_all_apis_are_shown(level: int) -> None:
    shown = advertised(SPOKEN_APIS.values(), for_nodes=True, transaction_version=level)
    assert {api.key for api in shown} == set(SPOKEN_APIS)


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
