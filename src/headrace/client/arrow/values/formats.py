# SPDX-License-Identifier: Apache-2.0
"""Formats of keys and values: a word such as "string", or Json and Avro with settings. Plain data.

Read next: converters.py (reading), serializers.py (writing).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

DEFAULT_SAMPLE = 10_000

AvroSchema = str | Mapping[str, Any] | Sequence[Any]
"""A schema as JSON text, or as parsed objects."""


@dataclass(frozen=True, slots=True)
class Json:
    """JSON objects. `schema`: a pyarrow schema, or the type of each value. Not nullable: in every record.

    Without one, it is inferred from the first `sample` records. `other_fields`: what to do with fields that
    the schema does not have: "ignore" them (a given schema does) or "reject" the record (a sampled one does).
    """

    schema: Any = None
    sample: int = DEFAULT_SAMPLE
    other_fields: Literal["ignore", "reject"] | None = None


@dataclass(frozen=True, slots=True)
class Avro:
    """Avro. `schema`: of bare records, or what records of a registry are to be read as.

    `registry`: the address of a schema registry (`http://user:password@host:8081`), for records in
    Confluent's wire format. `subject`: reads take its newest schema, writes register theirs under it
    (`TOPIC-value`, `TOPIC-key`).
    """

    schema: AvroSchema | None = None
    registry: str | None = None
    subject: str | None = None


Word = Literal["raw", "string", "int16", "int32", "int64", "float32", "float64", "json", "avro"]
Format = Word | Json | Avro
