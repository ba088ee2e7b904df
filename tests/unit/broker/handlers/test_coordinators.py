# SPDX-License-Identifier: Apache-2.0
"""FindCoordinator: the node of the partition of a group or a transactional id."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.broker.coordinators.coordinated_topic import java_hash
from headrace.broker.groups.coordinator import OFFSETS_TOPIC
from headrace.broker.transactions.coordinator import TRANSACTIONS_TOPIC
from headrace.errors import ApiError
from headrace.types import Node
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.read_handlers import FakeBroker, topic

GROUP, TRANSACTION, SHARE = 0, 1, 2


class FakeCoordinators:
    """Of groups, or of transactional ids."""

    def __init__(self, broker: FakeBroker, name: str, refusal: ApiError | None = None) -> None:
        self._broker = broker
        self._name = name
        self._refusal = refusal

    async def ensure_topic(self) -> None:
        if self._refusal is not None:
            raise self._refusal
        self._broker.set_view([topic(self._name, 50)])

    def coordinator_of(self, key: str) -> Node | None:
        view = self._broker.cluster.view
        return view.nodes.get(view.topics[self._name].partitions[java_hash(key) % 50].leader)


def found(version: int, key_type: int, key: str = "x", refusal: ApiError | None = None) -> Any:
    fields: dict[str, Any] = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
    if version >= 1:
        fields["key_type"] = key_type
    broker: Any = FakeBroker()
    broker.groups = FakeCoordinators(broker, OFFSETS_TOPIC, refusal)
    broker.transactions = FakeCoordinators(broker, TRANSACTIONS_TOPIC, refusal)
    reply = broker.ask(ApiKey.FIND_COORDINATOR, version, **fields)
    if version < 4:
        return reply
    (answer,) = reply.coordinators
    assert answer.key == key
    return answer


@pytest.mark.parametrize(
    ("version", "key_type"), [(0, GROUP), *((version, kind) for version in range(1, 7) for kind in (0, 1))]
)
def test_a_key_is_coordinated_by_the_node_that_leads_its_partition(version: int, key_type: int) -> None:
    answer = found(version, key_type)
    assert (answer.error_code, answer.node_id, answer.host) == (ErrorCode.none, 1, "plaintext-1")


@pytest.mark.parametrize(
    ("key_type", "name"), [(GROUP, "__consumer_offsets"), (TRANSACTION, "__transaction_state")]
)
def test_without_its_topic_there_is_no_coordinator(key_type: int, name: str) -> None:
    answer = found(6, key_type, refusal=ApiError(ErrorCode.policy_violation, "no room"))
    assert answer.error_code is ErrorCode.coordinator_not_available
    assert (answer.node_id, answer.port) == (-1, -1)
    assert name in answer.error_message
    assert "no room" in answer.error_message


@pytest.mark.parametrize("key_type", [SHARE, 9])
def test_other_coordinators_do_not_exist(key_type: int) -> None:
    assert found(6, key_type).error_code is ErrorCode.invalid_request


def test_every_key_of_a_batch_is_answered_once() -> None:
    broker: Any = FakeBroker()
    broker.transactions = FakeCoordinators(broker, TRANSACTIONS_TOPIC)
    reply = broker.ask(ApiKey.FIND_COORDINATOR, 6, key_type=TRANSACTION, coordinator_keys=["a", "b", "a", ""])
    assert [(answer.key, answer.node_id) for answer in reply.coordinators] == [("a", 1), ("b", 1), ("", 1)]


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
