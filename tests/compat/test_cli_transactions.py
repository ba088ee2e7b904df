"""`headrace transactions` against a Headrace node, which serves no transactions yet."""

from __future__ import annotations

import pytest
from cli_runner import Cli

PLACE = ("--topic", "orders", "--partition", "0")
PRODUCER = ("--producer-id", "1", "--producer-epoch", "0", "--coordinator-epoch", "0")


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("describe", "--id", "copier"),
        ("explain", "orders"),
        ("find-hanging", "--topic", "orders"),
        ("find-hanging", "--broker", "1"),
        ("abort", *PLACE, "--start-offset", "0"),
        ("abort", *PLACE, *PRODUCER),
        ("terminate", "--id", "copier", "--yes"),
        ("fence", "--id", "copier", "--id", "other", "--yes"),
    ],
    ids=" ".join,
)
def test_a_broker_without_transactions_is_named_in_one_line(
    bootstrap: str, arguments: tuple[str, ...]
) -> None:
    ended = Cli(bootstrap)("transactions", *arguments)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        f"headrace: the broker at {bootstrap} serves no transactions: Headrace's own broker does not yet; "
        "name a broker of Apache Kafka: --bootstrap HOST:PORT\n"
    )


def test_it_is_named_as_json_too(bootstrap: str) -> None:
    ended = Cli(bootstrap)("transactions", "list", "--json")
    assert '"code": "UNSUPPORTED_VERSION"' in ended.err
