# SPDX-License-Identifier: Apache-2.0
"""A schema registry with Confluent's API (Confluent, Karapace, Apicurio): schemas by id, and ids for them.

Plain blocking calls, from whichever thread decodes or encodes. Read next: avro/reader.py.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from headrace.client.arrow.values.avro.schema import AvroType, parse_schema
from headrace.client.errors import ClientError

if TYPE_CHECKING:
    from urllib.error import HTTPError

MAGIC = 0
PREFIX_BYTES = 5
"""Of Confluent's wire format: a zero byte and the schema's id, most significant byte first."""
_TIMEOUT_S = 10
_CONTENT = "application/vnd.schemaregistry.v1+json"


class UnknownSchema(ClientError):
    """The registry does not have it."""


class Registry:
    """Cached: the schema of an id never changes."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ClientError(
                f"{address!r} is no address of a schema registry", next_step="write it like http://host:8081"
            )
        host = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
        self._address = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._headers = {"Accept": _CONTENT, "Content-Type": _CONTENT}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        self._by_id: dict[int, AvroType] = {}

    def schema(self, schema_id: int) -> AvroType:
        """UnknownSchema when there is none of that id."""
        if schema_id not in self._by_id:
            self._by_id[schema_id] = self._parsed(self._call(f"/schemas/ids/{schema_id}"))
        return self._by_id[schema_id]

    def newest(self, subject: str) -> AvroType:
        return self._parsed(self._call(f"/subjects/{quote(subject, safe='')}/versions/latest"))

    def register(self, subject: str, schema: str) -> int:
        """Registers the schema, or finds it registered, and returns its id."""
        found = self._call(f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema})
        return int(found["id"])

    def _parsed(self, found: Any) -> AvroType:
        kind = found.get("schemaType", "AVRO")
        if kind != "AVRO":
            raise UnknownSchema(f"the schema is {kind}, not Avro")
        return parse_schema(found["schema"], self._references(found, {}).values())

    def _references(self, found: Any, known: dict[tuple[str, int], str]) -> dict[tuple[str, int], str]:
        """What others refer to comes before them."""
        for each in found.get("references") or ():
            place = (str(each["subject"]), int(each["version"]))
            if place not in known:
                inner = self._call(f"/subjects/{quote(place[0], safe='')}/versions/{place[1]}")
                self._references(inner, known)
                known[place] = inner["schema"]
        return known

    def _call(self, path: str, body: Any = None) -> Any:
        import urllib.error
        import urllib.request

        request = urllib.request.Request(
            self._address + path,
            data=None if body is None else json.dumps(body).encode(),
            headers=self._headers,
            method="GET" if body is None else "POST",
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise self._refusal(error, path) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise ClientError(f"no schema registry answers at {self._address}: {reason}") from None

    def _refusal(self, error: HTTPError, path: str) -> ClientError:
        with error:
            try:
                reason = json.load(error).get("message", error.reason)
            except (ValueError, AttributeError):
                reason = error.reason
        kind = UnknownSchema if error.code == 404 else ClientError
        return kind(f"the schema registry refused {path}: {reason} ({error.code})")
