# SPDX-License-Identifier: Apache-2.0
"""A cluster of one node that answers transactions from a script: no bytes, no sockets, no waiting."""

from __future__ import annotations

from collections import defaultdict, deque
from types import SimpleNamespace
from typing import Any

from headrace.client.connection import ConnectionLost
from headrace.wire.api_table import SPOKEN_APIS
from headrace.wire.error_codes import ErrorCode
from headrace.wire.kio_codec.schema import fields_of, message_class

FIND, INIT, PARTITIONS, OFFSETS, END, COMMIT = 10, 22, 24, 25, 26, 28
NAMES = {
    FIND: "find",
    INIT: "init",
    PARTITIONS: "partitions",
    OFFSETS: "offsets",
    END: "end",
    COMMIT: "commit",
}


class FakeNetworkClient:
    """Stands for a NetworkClient and for the connection to its node; remembers what it was asked."""

    address = "fake:9092"

    def __init__(self, transaction_version: int) -> None:
        self.features = {"transaction.version": transaction_version}
        self.versions = {key: (0, api.max_version) for key, api in SPOKEN_APIS.items()}
        self.asked: list[tuple[str, int, dict[str, Any]]] = []
        self.refusals: dict[int, deque[ErrorCode | None]] = defaultdict(deque)
        """By API, what to answer instead of the best: an error, or None to lose the connection."""
        self.epoch = -1

    def refuse(self, api_key: int, *codes: ErrorCode | None) -> None:
        self.refusals[api_key].extend(codes)

    @property
    def order(self) -> list[str]:
        return [name for name, _, _ in self.asked]

    async def any_connection(self) -> FakeNetworkClient:
        return self

    async def connection(self, node_id: int, lane: str) -> FakeNetworkClient:
        assert node_id == 7
        return self

    def learn(self, node_id: int, address: Any) -> None:
        assert node_id == 7

    def version_for(self, api_key: int) -> int:
        return self.versions[api_key][1]

    async def call(self, api_key: int, fields: dict[str, Any], *, version: int, timeout_ms: int = 0) -> Any:
        known = {
            field.name for field in fields_of(message_class(SPOKEN_APIS[api_key].name, version, "request"))
        }
        assert set(fields) <= known, "the encoder would refuse these"
        self.asked.append((NAMES[api_key], version, fields))
        code = self.refusals[api_key].popleft() if self.refusals[api_key] else ErrorCode.none
        if code is None:
            raise ConnectionLost("the reply was lost")
        if api_key in (INIT, END) and code is ErrorCode.none and (api_key == INIT or version >= 5):
            self.epoch += 1
        return getattr(self, f"_{NAMES[api_key]}")(fields, code)

    def _find(self, fields: dict[str, Any], code: ErrorCode) -> Any:
        node = SimpleNamespace(error_code=code, node_id=7, host="fake", port=9092)
        return SimpleNamespace(coordinators=[node])

    def _init(self, fields: dict[str, Any], code: ErrorCode) -> Any:
        return SimpleNamespace(error_code=code, producer_id=40, producer_epoch=self.epoch)

    _end = _offsets = _init

    def _partitions(self, fields: dict[str, Any], code: ErrorCode) -> Any:
        topics = fields["v3_and_below_topics"]
        results = [
            SimpleNamespace(
                results_by_partition=[
                    SimpleNamespace(partition_index=index, partition_error_code=code)
                    for index in topic["partitions"]
                ]
            )
            for topic in topics
        ]
        return SimpleNamespace(results_by_topic_v3_and_below=results)

    def _commit(self, fields: dict[str, Any], code: ErrorCode) -> Any:
        first, *others = [entry for topic in fields["topics"] for entry in topic["partitions"]]
        entries = [SimpleNamespace(error_code=code), *(SimpleNamespace(error_code=0) for _ in others)]
        assert first is not None
        return SimpleNamespace(topics=[SimpleNamespace(partitions=entries)])
