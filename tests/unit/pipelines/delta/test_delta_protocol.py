# SPDX-License-Identifier: Apache-2.0
"""Which tables are written to: by what they use, not by what their version would allow."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.client.errors import ClientError
from headrace.pipelines.delta.protocol import TableTerms
from headrace.pipelines.delta.table import local_path


def terms(
    version: int,
    features: list[str] | None = None,
    *,
    configuration: dict[str, str | None] | None = None,
    metadata: dict[str, Any] | None = None,
) -> TableTerms:
    inner = {"name": "x", "type": "long", "nullable": True, "metadata": metadata or {}}
    nested = {"type": "array", "elementType": {"type": "struct", "fields": [inner]}, "containsNull": True}
    field = {"name": "list", "type": nested, "nullable": True, "metadata": {}}
    return TableTerms(
        writer_version=version,
        writer_features=features,
        configuration=configuration or {},
        schema={"type": "struct", "fields": [field]},
    )


@pytest.mark.parametrize("version", range(1, 7))
def test_old_tables_that_use_nothing_are_written_to(version: int) -> None:
    assert terms(version).unmet() == []


@pytest.mark.parametrize(
    ("version", "changed", "named"),
    [
        (2, {"metadata": {"delta.invariants": "{}"}}, ["invariants"]),
        (3, {"configuration": {"delta.constraints.positive": "x > 0"}}, ["checkConstraints"]),
        (4, {"metadata": {"delta.generationExpression": "1"}}, ["generatedColumns"]),
        (5, {"configuration": {"delta.columnMapping.mode": "name"}}, ["columnMapping"]),
        (6, {"metadata": {"delta.identity.start": 1}}, ["identityColumns"]),
        (8, {}, ["writer version 8"]),
    ],
)
def test_unsupported_features_are_named(version: int, changed: dict[str, Any], named: list[str]) -> None:
    assert terms(version, **changed).unmet() == named


def test_features_that_ask_nothing_of_an_append_are_fine() -> None:
    features = [
        "appendOnly",
        "invariants",
        "timestampNtz",
        "domainMetadata",
        "changeDataFeed",
        "columnMapping",
    ]
    assert terms(7, [*features, "deletionVectors"]).unmet() == []
    assert terms(7, [*features, "deletionVectors"]).unmet(overwrite=True) == ["deletionVectors"]


def test_features_of_the_future_are_refused_by_name() -> None:
    assert terms(7, ["timestampNtz", "rowTracking", "madeTomorrow"]).unmet() == [
        "madeTomorrow",
        "rowTracking",
    ]


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("/data/orders", "/data/orders"),
        ("/data/x/../orders/", "/data/orders"),
        ("file:///data/my%20orders", "/data/my orders"),
        ("file:/data/orders", "/data/orders"),
    ],
)
def test_the_table_path_is_found(written: str, path: str) -> None:
    assert str(local_path(written)) == path


@pytest.mark.parametrize("written", ["s3://bucket/orders", "hdfs:///orders", "file://other/orders"])
def test_other_places_are_refused(written: str) -> None:
    with pytest.raises(ClientError, match="only file systems are supported"):
        local_path(written)
