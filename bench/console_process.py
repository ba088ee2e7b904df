# SPDX-License-Identifier: Apache-2.0
"""`headrace console` as a process beside the brokers, viewers of its documents, and a browser on its pages.

Times of arrival are those of time.monotonic(). Read next: measures/console.py.
"""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode
from urllib.request import urlopen

from headrace.cluster.engines.engine import EngineError, free_ports
from headrace.cluster.engines.process_stats import read_process_tree

HOST = "127.0.0.1"
_READY_WITHIN_S = 60.0
_READ_TIMEOUT_S = 60.0
_POLL_S = 0.02

Document = dict[str, Any]
T = TypeVar("T")


class ConsoleProcess:
    """Stopped at the end of the block."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._log = folder / "console.log"
        self.port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}"

    def __enter__(self) -> ConsoleProcess:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "headrace.cli.main", "console", "--bootstrap", self._bootstrap]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--port", str(self.port)], stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + _READY_WITHIN_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise EngineError(f"the console did not start:\n{self._log.read_text()[-2000:]}")
            time.sleep(_POLL_S)
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def cpu_seconds(self) -> float:
        return read_process_tree(self._pid()).cpu_seconds

    def rss_mb(self) -> float:
        return read_process_tree(self._pid()).rss_bytes / 1e6

    def get(self, path: str) -> Any:
        with urlopen(f"{self.address}{path}", timeout=_READ_TIMEOUT_S) as reply:
            return json.load(reply)

    def _pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _answers(self) -> bool:
        try:
            self.get("/api/session")
        except OSError:
            return False
        return True


class Viewer:
    """One open page: reads the server-sent events of a view, and keeps the newest document."""

    def __init__(self, console: ConsoleProcess, view: str, params: Mapping[str, str] | None = None) -> None:
        query = f"?{urlencode(params)}" if params else ""
        self._path = f"/api/live/{view}{query}"
        self._connection = http.client.HTTPConnection(HOST, console.port, timeout=_READ_TIMEOUT_S)
        self._changed = threading.Condition()
        self._newest: tuple[float, Document] | None = None
        self._ended: str | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Viewer:
        self._connection.request("GET", self._path, headers={"Accept": "text/event-stream"})
        self._reply = self._connection.getresponse()
        if self._reply.status != 200:
            raise EngineError(f"{self._path} was answered with {self._reply.status}: {self._reply.read()!r}")
        self._thread.start()
        self.wait_for(lambda _: True, timeout_s=_READ_TIMEOUT_S)
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection.sock is not None:
            self._connection.sock.close()
        self._connection.close()

    def wait_for(self, true: Callable[[Document], bool], *, timeout_s: float = 30) -> float:
        """When a document for which this is true arrived."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while self._newest is None or not true(self._newest[1]):
                left = deadline - time.monotonic()
                if self._ended is not None or left <= 0:
                    raise TimeoutError(f"{self._path}: no such document; {self._ended or 'still connected'}")
                self._changed.wait(left)
            return self._newest[0]

    def _read(self) -> None:
        try:
            for event, data in _events(self._reply):
                if event == "view":
                    self._arrived(json.loads(data))
            ended = "the stream ended"
        except (OSError, ValueError, http.client.HTTPException, AttributeError) as error:
            ended = f"the stream broke: {error}"
        with self._changed:
            self._ended = ended
            self._changed.notify_all()

    def _arrived(self, document: Document) -> None:
        with self._changed:
            self._newest = (time.monotonic(), document)
            self._changed.notify_all()


def _events(reply: http.client.HTTPResponse) -> Iterator[tuple[str, str]]:
    """(event, data) pairs."""
    event, data = "message", ""
    while line := reply.readline():
        text = line.decode().rstrip("\r\n")
        name, _, value = text.partition(":")
        if name == "event":
            event = value.strip()
        elif name == "data":
            data += value.strip()
        elif not text and data:
            yield event, data
            event, data = "message", ""


@contextmanager
def open_browser() -> Iterator[Any]:
    """Headless Chromium of the system, without animations: a browser of Playwright's API."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise EngineError("first paint needs Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class BrowserThread:
    """A browser in a thread of its own: while Playwright is open, its thread runs an event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._open = ExitStack()

    def __enter__(self) -> BrowserThread:
        self._browser = self.call(lambda: self._open.enter_context(open_browser())).result()
        self.page = self.call(self._browser.new_page).result()
        return self

    def __exit__(self, *_: object) -> None:
        self.call(self._open.close).result()
        self._thread.shutdown()

    def call(self, function: Callable[..., T], *arguments: Any, **named: Any) -> Future[T]:
        """Run a call of `page` there."""
        return self._thread.submit(function, *arguments, **named)
