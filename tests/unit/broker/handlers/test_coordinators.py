"""FindCoordinator: the node of a group's partition, and refusals that clients understand."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headrace.broker.coordinators.coordinated_topic import java_hash
from headrace.broker.groups.coordinator import OFFSETS_TOPIC
from headrace.broker.groups.no_transactions import log_refused_transaction
from headrace.errors import ApiError
from headrace.types import Node
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.read_handlers import FakeBroker, topic

GROUP, TRANSACTION, SHARE = 0, 1, 2


class FakeGroups:
    def __init__(self, broker: FakeBroker, refusal: ApiError | None = None) -> None:
        self._broker = broker
        self._refusal = refusal

    async def ensure_topic(self) -> None:
        if self._refusal is not None:
            raise self._refusal
        self._broker.set_view([topic(OFFSETS_TOPIC, 50)])

    def coordinator_of(self, group_id: str) -> Node | None:
        view = self._broker.cluster.view
        return view.nodes.get(view.topics[OFFSETS_TOPIC].partitions[java_hash(group_id) % 50].leader)


def found(version: int, key_type: int, key: str = "x", refusal: ApiError | None = None) -> Any:
    fields: dict[str, Any] = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
    if version >= 1:
        fields["key_type"] = key_type
    broker: Any = FakeBroker()
    broker.groups = FakeGroups(broker, refusal)
    reply = broker.ask(ApiKey.FIND_COORDINATOR, version, **fields)
    if version < 4:
        return reply
    (answer,) = reply.coordinators
    assert answer.key == key
    return answer


@pytest.mark.parametrize("version", range(7))
def test_a_group_is_coordinated_by_the_node_that_leads_its_partition(version: int) -> None:
    answer = found(version, GROUP)
    assert (answer.error_code, answer.node_id, answer.host) == (ErrorCode.none, 1, "plaintext-1")


def test_without_the_offsets_topic_there_is_no_coordinator() -> None:
    answer = found(6, GROUP, refusal=ApiError(ErrorCode.policy_violation, "no room"))
    assert answer.error_code is ErrorCode.coordinator_not_available
    assert "no room" in answer.error_message


@pytest.mark.parametrize("version", range(1, 7))
def test_transactions_are_refused_with_a_code_that_no_client_retries_and_a_reason(version: int) -> None:
    answer = found(version, TRANSACTION)
    assert answer.error_code is ErrorCode.cluster_authorization_failed
    assert "transactions are not served" in answer.error_message
    assert (answer.node_id, answer.port) == (-1, -1)


@pytest.mark.parametrize("key_type", [SHARE, 9])
def test_other_coordinators_do_not_exist(key_type: int) -> None:
    assert found(6, key_type).error_code is ErrorCode.invalid_request


def test_every_key_of_a_batch_is_answered() -> None:
    reply = FakeBroker().ask(ApiKey.FIND_COORDINATOR, 6, key_type=TRANSACTION, coordinator_keys=["a", "b"])
    assert [answer.key for answer in reply.coordinators] == ["a", "b"]


def test_the_node_logs_once_which_transaction_it_could_not_serve(caplog: pytest.LogCaptureFixture) -> None:
    log_refused_transaction.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            found(2, TRANSACTION, "eager\x1b[31m")
    (record,) = caplog.records
    assert "transactions are not served" in record.getMessage()
    assert "\x1b" not in record.getMessage()


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", 0), ("grüße😀", None)],
)
def test_groups_are_spread_by_javas_hash(text: str, value: int | None) -> None:
    assert java_hash(text) == (value if value is not None else _by_definition(text))


def _by_definition(text: str) -> int:
    units = text.encode("utf-16-be")
    total = 0
    for at in range(0, len(units), 2):
        total = (31 * total + int.from_bytes(units[at : at + 2], "big")) % 2**32
    return abs(total - 2**32 if total >= 2**31 else total)
