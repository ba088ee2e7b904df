# SPDX-License-Identifier: Apache-2.0
"""Headrace: an event-streaming platform that speaks the Kafka protocol, and its Python client.

Write any table to a topic, and read a topic as a table; with Headrace, Apache Kafka or any other broker:

    import headrace

    headrace.write([{"key": "ann", "item": "fig", "price": 0.5}], "orders")
    frame = headrace.topic("orders").last("10m").typed(key="string", value="json").to_pandas()

    with headrace.stream("orders", group="billing", value="json") as batches:
        for batch in batches:  # pyarrow.RecordBatch
            print(batch.num_rows)

    with headrace.Admin() as admin:
        print(admin.topics(), admin.lag("billing").records)

- Reading and writing: `read`, `write`, `topic`, `stream`; with `Json`, `Avro`, `Rejects`, `Delivered`.
- Exactly once: `transaction`, `transform`.
- For asyncio: `aread`, `awrite`, `astream`, `atransaction`, `atransform`.
- Administration: `Admin` has topics, settings, groups and their lag.
- TLS and login: `Security` with `Plain`, `ScramSha256`, `ScramSha512` or `OAuthBearer`.
- Errors: all are a `HeadraceError`. A `ClientError` says what failed and what to do next; among them are
  `NoSuchTopic`, `WriteFailed`, `TransactionFenced`, `OutcomeUnknown` and `AuthenticationFailed`.
- A broker for tests: `headrace.testing.Broker`, and fixtures for pytest.

Every call finds the cluster by its argument `bootstrap`, then by the variable HEADRACE_BOOTSTRAP, then at
127.0.0.1:9092. Reading and writing need `pip install headrace[arrow]`; Admin does not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headrace.version import __version__ as __version__

if TYPE_CHECKING:
    from headrace.client.admin import Admin as Admin
    from headrace.client.admin import GroupLag as GroupLag
    from headrace.client.admin import PartitionLag as PartitionLag
    from headrace.client.arrow.read.reader import aread as aread
    from headrace.client.arrow.read.reader import read as read
    from headrace.client.arrow.read.selection import Selection as Selection
    from headrace.client.arrow.read.selection import topic as topic
    from headrace.client.arrow.read.typed import Rejects as Rejects
    from headrace.client.arrow.stream.stream import AsyncStream as AsyncStream
    from headrace.client.arrow.stream.stream import Stream as Stream
    from headrace.client.arrow.stream.stream import astream as astream
    from headrace.client.arrow.stream.stream import stream as stream
    from headrace.client.arrow.transform.transform import atransform as atransform
    from headrace.client.arrow.transform.transform import transform as transform
    from headrace.client.arrow.transform.transformer import Transformed as Transformed
    from headrace.client.arrow.transform.transformer import TransformFailed as TransformFailed
    from headrace.client.arrow.values.formats import Avro as Avro
    from headrace.client.arrow.values.formats import Json as Json
    from headrace.client.arrow.write.results import Delivered as Delivered
    from headrace.client.arrow.write.results import PartitionDelivery as PartitionDelivery
    from headrace.client.arrow.write.results import WriteFailed as WriteFailed
    from headrace.client.arrow.write.transaction import AsyncTransaction as AsyncTransaction
    from headrace.client.arrow.write.transaction import Transaction as Transaction
    from headrace.client.arrow.write.transaction import atransaction as atransaction
    from headrace.client.arrow.write.transaction import transaction as transaction
    from headrace.client.arrow.write.transaction_session import OutcomeUnknown as OutcomeUnknown
    from headrace.client.arrow.write.transaction_session import TransactionFenced as TransactionFenced
    from headrace.client.arrow.write.transaction_session import TransactionsNotServed as TransactionsNotServed
    from headrace.client.arrow.write.writer import awrite as awrite
    from headrace.client.arrow.write.writer import write as write
    from headrace.client.connection import ConnectionLost as ConnectionLost
    from headrace.client.connection import RequestTimedOut as RequestTimedOut
    from headrace.client.errors import BrokerError as BrokerError
    from headrace.client.errors import ClientError as ClientError
    from headrace.client.network_client import NoSuchTopic as NoSuchTopic
    from headrace.client.sasl import AuthenticationFailed as AuthenticationFailed
    from headrace.client.sasl import OAuthBearer as OAuthBearer
    from headrace.client.sasl import Plain as Plain
    from headrace.client.sasl import ScramSha256 as ScramSha256
    from headrace.client.sasl import ScramSha512 as ScramSha512
    from headrace.client.security import Security as Security
    from headrace.client.tools.admin import ConfigValue as ConfigValue
    from headrace.client.tools.admin import PartitionDescription as PartitionDescription
    from headrace.client.tools.admin import TopicDescription as TopicDescription
    from headrace.client.tools.admin import TopicSummary as TopicSummary
    from headrace.client.tools.group_calls import GroupDescription as GroupDescription
    from headrace.client.tools.group_calls import GroupListing as GroupListing
    from headrace.client.tools.group_calls import GroupMember as GroupMember
    from headrace.client.tools.reset import OffsetChange as OffsetChange
    from headrace.errors import HeadraceError as HeadraceError
    from headrace.types import TopicPartition as TopicPartition

__all__ = [
    "Admin",
    "AsyncStream",
    "AsyncTransaction",
    "AuthenticationFailed",
    "Avro",
    "BrokerError",
    "ClientError",
    "ConfigValue",
    "ConnectionLost",
    "Delivered",
    "GroupDescription",
    "GroupLag",
    "GroupListing",
    "GroupMember",
    "HeadraceError",
    "Json",
    "NoSuchTopic",
    "OAuthBearer",
    "OffsetChange",
    "OutcomeUnknown",
    "PartitionDelivery",
    "PartitionDescription",
    "PartitionLag",
    "Plain",
    "Rejects",
    "RequestTimedOut",
    "ScramSha256",
    "ScramSha512",
    "Security",
    "Selection",
    "Stream",
    "TopicDescription",
    "TopicPartition",
    "TopicSummary",
    "Transaction",
    "TransactionFenced",
    "TransactionsNotServed",
    "TransformFailed",
    "Transformed",
    "WriteFailed",
    "__version__",
    "aread",
    "astream",
    "atransaction",
    "atransform",
    "awrite",
    "read",
    "stream",
    "topic",
    "transaction",
    "transform",
    "write",
]

_WITHOUT_EXTRA = {
    "Admin": "headrace.client.admin",
    "AuthenticationFailed": "headrace.client.sasl",
    "BrokerError": "headrace.client.errors",
    "ClientError": "headrace.client.errors",
    "ConfigValue": "headrace.client.tools.admin",
    "ConnectionLost": "headrace.client.connection",
    "GroupDescription": "headrace.client.tools.group_calls",
    "GroupLag": "headrace.client.admin",
    "GroupListing": "headrace.client.tools.group_calls",
    "GroupMember": "headrace.client.tools.group_calls",
    "HeadraceError": "headrace.errors",
    "NoSuchTopic": "headrace.client.network_client",
    "OAuthBearer": "headrace.client.sasl",
    "OffsetChange": "headrace.client.tools.reset",
    "PartitionDescription": "headrace.client.tools.admin",
    "PartitionLag": "headrace.client.admin",
    "Plain": "headrace.client.sasl",
    "RequestTimedOut": "headrace.client.connection",
    "ScramSha256": "headrace.client.sasl",
    "ScramSha512": "headrace.client.sasl",
    "Security": "headrace.client.security",
    "TopicDescription": "headrace.client.tools.admin",
    "TopicPartition": "headrace.types",
    "TopicSummary": "headrace.client.tools.admin",
}
_WITH_ARROW = {
    "AsyncStream": "headrace.client.arrow.stream.stream",
    "AsyncTransaction": "headrace.client.arrow.write.transaction",
    "Avro": "headrace.client.arrow.values.formats",
    "Delivered": "headrace.client.arrow.write.results",
    "Json": "headrace.client.arrow.values.formats",
    "OutcomeUnknown": "headrace.client.arrow.write.transaction_session",
    "PartitionDelivery": "headrace.client.arrow.write.results",
    "Rejects": "headrace.client.arrow.read.typed",
    "Selection": "headrace.client.arrow.read.selection",
    "Stream": "headrace.client.arrow.stream.stream",
    "Transaction": "headrace.client.arrow.write.transaction",
    "TransactionFenced": "headrace.client.arrow.write.transaction_session",
    "TransactionsNotServed": "headrace.client.arrow.write.transaction_session",
    "TransformFailed": "headrace.client.arrow.transform.transformer",
    "Transformed": "headrace.client.arrow.transform.transformer",
    "WriteFailed": "headrace.client.arrow.write.results",
    "aread": "headrace.client.arrow.read.reader",
    "astream": "headrace.client.arrow.stream.stream",
    "atransaction": "headrace.client.arrow.write.transaction",
    "atransform": "headrace.client.arrow.transform.transform",
    "awrite": "headrace.client.arrow.write.writer",
    "read": "headrace.client.arrow.read.reader",
    "stream": "headrace.client.arrow.stream.stream",
    "topic": "headrace.client.arrow.read.selection",
    "transaction": "headrace.client.arrow.write.transaction",
    "transform": "headrace.client.arrow.transform.transform",
    "write": "headrace.client.arrow.write.writer",
}
"""Public names by module, loaded when first used: `import headrace` stays quick."""
_EXTRA = ("numpy", "pyarrow")


if not TYPE_CHECKING:  # type checkers know the names above, and no others

    def __getattr__(name: str) -> Any:
        module = _WITHOUT_EXTRA.get(name) or _WITH_ARROW.get(name)
        if module is None:
            raise AttributeError(f"module 'headrace' has no attribute {name!r}")
        try:
            if name in _WITH_ARROW:
                for library in _EXTRA:  # named here, not where its first use happens to be
                    importlib.import_module(library)
            found = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name not in _EXTRA:
                raise
            return _missing(name, error.name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _missing(name: str, library: str) -> Any:
    """Refuses to be called. A class, so that `except headrace.WriteFailed:` is valid without the extra."""

    def refuse(*_: object, **__: object) -> None:
        raise ImportError(f"headrace.{name} needs {library}: pip install headrace[arrow]")

    return type(name, (Exception,), {"__new__": refuse})
