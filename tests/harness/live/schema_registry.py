# SPDX-License-Identifier: Apache-2.0
"""A schema registry in this process, in memory, with as much of Confluent's API as serializers use.

No compatibility rules, no deletion. Read next: client/arrow/values/avro/registry.py, which talks to it.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


class SchemaRegistry:
    """`schemas` by id, from 1 on; `subjects` to the ids of their versions."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.calls: list[str] = []
        self.authorized: set[str | None] = set()
        self.address = ""

    def add(self, subject: str, schema: Any, **more: Any) -> int:
        document = {"schema": schema if isinstance(schema, str) else json.dumps(schema), **more}
        known = [number for number, each in self.schemas.items() if each == document]
        number = known[0] if known else len(self.schemas) + 1
        self.schemas[number] = document
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        parts = [unquote(part) for part in path.partition("?")[0].strip("/").split("/")]
        try:
            if parts[:2] == ["schemas", "ids"]:
                return 200, self.schemas[int(parts[2])]
            if parts == ["subjects"]:
                return 200, sorted(self.subjects)
            if body is not None:
                return 200, {"id": self.add(parts[1], body["schema"])}
            version = -1 if parts[3] == "latest" else int(parts[3]) - 1
            number = self.subjects[parts[1]][version]
            return 200, {"subject": parts[1], "id": number, **self.schemas[number]}
        except (KeyError, IndexError, ValueError):  # also what is not served here
            return 404, {"error_code": 40403, "message": f"{path} not found"}


@contextmanager
def running_registry() -> Iterator[SchemaRegistry]:
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self, body: Any = None) -> None:
            registry.calls.append(self.path)
            registry.authorized.add(self.headers.get("Authorization"))
            status, document = registry.answer(self.path, body)
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def log_message(self, *_: Any) -> None:
            """Tests look at `calls`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    registry.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def basic(pair: str) -> str:
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
