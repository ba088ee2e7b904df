"""headrace.transform on a broker without transactions: refused before anything is read."""

from __future__ import annotations

import asyncio

import pytest

import headrace
from headrace.client.arrow.write.transaction_session import TransactionsNotServed
from headrace.client.errors import ClientError

REASON = r"serves no transactions; .*at least once: headrace.stream\(…, commit=False\), headrace.write\(…\)"


def test_a_broker_without_transactions_is_named_with_the_alternative(bootstrap: str, topic: str) -> None:
    with pytest.raises(TransactionsNotServed, match=REASON) as raised:
        headrace.transform(topic, f"{topic}-out", lambda batch: batch, group=topic, bootstrap=bootstrap)
    assert raised.value.code == "UNSUPPORTED_VERSION"
    with pytest.raises(ClientError, match=REASON):
        asyncio.run(
            headrace.atransform(topic, f"{topic}-out", lambda batch: batch, group=topic, bootstrap=bootstrap)
        )
