# SPDX-License-Identifier: Apache-2.0
"""Avro in Confluent's wire format, by the schema registry that HEADRACE_SCHEMA_REGISTRY names.

Decoding is the Arrow client's, row by row; it needs the extra `[arrow]`. Blocking: runs in a thread.
A registry that does not answer is left alone for half a minute.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from headrace.client.errors import ClientError
from headrace.console.messages.values import Parsed

REGISTRY_VARIABLE = "HEADRACE_SCHEMA_REGISTRY"
_PREFIX_BYTES = 5
_LEAVE_ALONE_S = 30
_MOST_SCHEMAS = 1_000


class RegistryAvro:
    """One for the process: the schema of an id never changes."""

    def __init__(self, address: str | None) -> None:
        self._address = address
        self._registry: Any = None
        self._nodes: dict[int, Any] = {}
        self._failures: dict[int, tuple[float, ClientError]] = {}
        self._lock = threading.Lock()

    def recognises(self, data: bytes) -> bool:
        return self._address is not None and len(data) >= _PREFIX_BYTES and data[0] == 0

    def decode(self, data: bytes) -> Parsed:
        if self._address is None:
            raise ClientError(
                "no schema registry is configured",
                next_step=f"start the console with {REGISTRY_VARIABLE}=http://HOST:8081",
            )
        if len(data) < _PREFIX_BYTES or data[0] != 0:
            raise ClientError("these bytes are not in the registry's wire format")
        return self._decode(int.from_bytes(data[1:_PREFIX_BYTES], "big"), data)

    def _decode(self, schema_id: int, data: bytes) -> Parsed:
        try:
            import pyarrow as pa

            from headrace.client.arrow.values.avro.row_wise import read_avro_rows
        except ImportError:
            raise ClientError(
                "Avro needs an extra that is not installed", next_step='pip install "headrace[arrow]"'
            ) from None
        nodes = self._schema(schema_id)
        try:
            column, faults = read_avro_rows(nodes, pa.array([data], pa.binary()), _PREFIX_BYTES)
            value = column.to_pylist()[0]
        except (ValueError, RecursionError, pa.ArrowException) as error:
            raise ClientError(f"the bytes do not fit schema {schema_id}: {error}") from error
        if faults[0].any():
            raise ClientError(f"the bytes do not fit schema {schema_id}")
        plain = _plain(value)
        return Parsed(plain, json.dumps(plain, ensure_ascii=False), "avro")

    def _schema(self, schema_id: int) -> Any:
        with self._lock:
            failed = self._failures.get(schema_id) or self._failures.get(-1)
            if failed is not None and time.monotonic() < failed[0]:
                raise failed[1]
            if schema_id not in self._nodes:
                self._nodes[schema_id] = self._load(schema_id)
            return self._nodes[schema_id]

    def _load(self, schema_id: int) -> Any:
        from headrace.client.arrow.values.avro.nodes import avro_nodes
        from headrace.client.arrow.values.avro.registry import Registry, UnknownSchema

        if len(self._nodes) >= _MOST_SCHEMAS or len(self._failures) >= _MOST_SCHEMAS:
            self._nodes.clear()
            self._failures.clear()
        try:
            self._registry = self._registry or Registry(self._address or "")
            return avro_nodes(self._registry.schema(schema_id))
        except ClientError as error:
            whose = schema_id if isinstance(error, UnknownSchema) else -1
            self._failures[whose] = (time.monotonic() + _LEAVE_ALONE_S, error)
            raise


def from_environment(environment: Mapping[str, str] = os.environ) -> RegistryAvro:
    return RegistryAvro(environment.get(REGISTRY_VARIABLE) or None)


def _plain(value: Any) -> Any:
    """What JSON can say: bytes as hex, moments and decimals as text."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        return {str(key): _plain(each) for key, each in value}  # a map, as pyarrow returns it
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return value.hex() if isinstance(value, bytes) else str(value)
