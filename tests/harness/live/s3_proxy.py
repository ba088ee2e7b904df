# SPDX-License-Identifier: Apache-2.0
"""A proxy before an S3 server: stops a conditional put before it arrives, or its answer; or drops conditions.

`before` and `after` are called for each put of an entry of a table's log, and may do anything meanwhile: kill
the driver, let another one commit. See s3_server.py.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from tests.harness.live.s3_server import REGION, SECRET_KEY

_CONDITION = "if-none-match"
_LOG = "_delta_log/"
_CHECK = "_headrace_check_"


class S3Proxy:
    """`before` and `after` get the object's name, and return whether to go on."""

    def __init__(self, server_port: int) -> None:
        self.before: Callable[[str], bool] = lambda name: True
        self.after: Callable[[str], bool] = lambda name: True
        self.drops_conditions = False
        self.statuses: list[tuple[str, int]] = []
        """Of conditional puts to logs: name and the server's answer."""
        self._server_port = server_port
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                proxy._handle(self)

            def __getattr__(self, name: str) -> Any:
                """Every method is `do_…`."""
                if name.startswith("do_"):
                    return self._handle
                raise AttributeError(name)

            def log_message(self, format: str, *args: Any) -> None:
                """Silent."""

        self._http = _Server(("127.0.0.1", 0), Handler)
        self.port = int(self._http.server_address[1])
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _handle(self, asked: BaseHTTPRequestHandler) -> None:
        body = asked.rfile.read(int(asked.headers.get("Content-Length", 0)))
        name = unquote(asked.path.partition("?")[0])
        headers = {key.lower(): value for key, value in asked.headers.items()}
        is_commit = asked.command == "PUT" and _CONDITION in headers and _LOG in name and _CHECK not in name
        if is_commit and not self.before(name):
            return _cut(asked)
        if self.drops_conditions and _CONDITION in headers:
            headers = _resigned({k: v for k, v in headers.items() if k != _CONDITION}, asked)
        status, answered, content = self._forward(asked, headers, body)
        if is_commit:
            self.statuses.append((name, status))
            if not self.after(name):
                return _cut(asked)
        asked.send_response_only(status)
        for key, value in answered:
            if key.lower() not in ("transfer-encoding", "connection"):
                asked.send_header(key, value)
        if not any(key.lower() == "content-length" for key, _ in answered):
            asked.send_header("Content-Length", str(len(content)))
        asked.end_headers()
        asked.wfile.write(content)
        return None

    def _forward(
        self, asked: BaseHTTPRequestHandler, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._server_port, timeout=60)
        try:
            connection.putrequest(asked.command, asked.path, skip_host=True, skip_accept_encoding=True)
            for key, value in headers.items():
                connection.putheader(key, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed."""


def _cut(asked: BaseHTTPRequestHandler) -> None:
    asked.close_connection = True
    asked.connection.shutdown(socket.SHUT_RDWR)


def _resigned(headers: dict[str, str], asked: BaseHTTPRequestHandler) -> dict[str, str]:
    """The request's signature without the condition, as a client makes it that sends none."""
    scope = headers["authorization"].partition("Credential=")[2].partition(",")[0].partition("/")[2]
    named = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    signed = [name for name in named if name in headers]
    path, _, query = asked.path.partition("?")
    lines = [f"{name}:{headers[name].strip()}" for name in signed]
    body = headers["x-amz-content-sha256"]
    canonical = "\n".join([asked.command, path, query, *lines, "", ";".join(signed), body])
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, digest])
    key = f"AWS4{SECRET_KEY}".encode()
    for part in (headers["x-amz-date"][:8], REGION, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    credential = headers["authorization"].partition("Credential=")[2].partition(",")[0]
    return headers | {
        "authorization": f"AWS4-HMAC-SHA256 Credential={credential}, "
        f"SignedHeaders={';'.join(signed)}, Signature={signature}"
    }
