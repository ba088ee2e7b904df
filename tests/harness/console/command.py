# SPDX-License-Identifier: Apache-2.0
"""`headrace console` as a process on a free port, and a browser's part of a conversation with it."""

from __future__ import annotations

import http.client
import json
import signal
import ssl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.harness.waiting import poll

START_S = 60.0
_STOP_S = 30.0


class ConsoleCommand:
    """Use it as a context manager; it is ready inside."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.log_path = folder / "console.err"
        self._ready_path = folder / "console.out"
        self._command = [
            *(sys.executable, "-m", "headrace.cli.main", "console", "--port", "0", "--json"),
            *("--log-level", "debug", *arguments),
        ]
        self.ready: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ConsoleCommand:
        with self._ready_path.open("wb") as out, self.log_path.open("wb") as err:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        process = self._process
        poll(lambda: self._line() or process.poll() is not None, timeout_s=START_S)
        assert self._line(), f"the console is not ready:\n{self.log}"
        self.ready = json.loads(self._line())
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """The exit code after the signal."""
        assert self._process is not None
        self._process.send_signal(number)
        try:
            return self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the console does not stop:\n{self.log}") from None

    @property
    def url(self) -> str:
        return str(self.ready["url"])

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def _line(self) -> str:
        text = self._ready_path.read_text()
        return text if text.endswith("\n") else ""


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.data)


class Visitor:
    """Keeps the cookie and the CSRF token, as a browser and the page do."""

    def __init__(self, url: str, context: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        self.address = (parts.hostname or "", parts.port or 0)
        self._context = context
        self.cookie = ""
        self.csrf = ""

    def connection(self) -> http.client.HTTPConnection:
        host, port = self.address
        if self._context is not None:
            return http.client.HTTPSConnection(host, port, timeout=START_S, context=self._context)
        return http.client.HTTPConnection(host, port, timeout=START_S)

    def ask(self, method: str, path: str, document: Any = None, **headers: str) -> Answer:
        connection = self.connection()
        body = None if document is None else json.dumps(document).encode()
        own = {"Cookie": self.cookie, "X-CSRF-Token": self.csrf, "Content-Type": "application/json"}
        try:
            connection.request(method, path, body=body, headers={**own, **headers})
            reply = connection.getresponse()
            answer = Answer(reply.status, dict(reply.getheaders()), reply.read())
        finally:
            connection.close()
        if cookie := answer.headers.get("set-cookie"):
            self.cookie = cookie.partition(";")[0]
        return answer

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def session(self) -> Any:
        session = self.get("/api/session").document
        self.csrf = session["csrf"]
        return session

    def log_in(self, user: str, password: str, mechanism: str) -> Answer:
        self.session()
        answer = self.ask("POST", "/api/login", {"user": user, "password": password, "mechanism": mechanism})
        self.csrf = answer.document.get("csrf", self.csrf)
        return answer

    def live(self, path: str) -> LiveStream:
        connection = self.connection()
        connection.request("GET", path, headers={"Cookie": self.cookie})
        return LiveStream(connection, connection.getresponse())


class LiveStream:
    """Server-sent events as they arrive."""

    def __init__(self, connection: http.client.HTTPConnection, reply: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._reply = reply
        self.status = reply.status

    def __enter__(self) -> LiveStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._reply.close()
        self._connection.close()

    def event(self) -> bytes:
        """The next one that is not only a comment or a retry time."""
        while True:
            lines = []
            while (line := self._reply.readline()) not in (b"\n", b""):
                lines.append(line)
            if any(each.startswith(b"event:") for each in lines):
                return b"".join(lines)
            assert line, "the stream has ended"
