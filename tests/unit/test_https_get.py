# SPDX-License-Identifier: Apache-2.0
"""The bounded GET: what it returns, and every limit (S9)."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headrace.https_get import https_get

CERTIFICATES = Path(__file__).parents[1] / "data/tls"


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/keys")
            self.end_headers()
        elif self.path == "/drip":
            self._drip()
        elif self.path == "/rubbish":
            self.wfile.write(b"\0\0\0\r\n\r\n")
        else:
            self.send_response(200 if self.path.startswith("/keys") else 404)
            self.end_headers()
            self.wfile.write(self.path.encode() * (1000 if self.path == "/keys/large" else 1))

    def _drip(self) -> None:
        self.send_response(200)
        self.end_headers()
        for _ in range(50):
            self.wfile.write(b"x")
            time.sleep(0.1)  # slower than the limit, though never silent for long

    def log_message(self, *_: object) -> None:
        pass


class QuietServer(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Clients of these tests hang up."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATES / "server.pem")
    server = QuietServer(("127.0.0.1", 0), Pages)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"https://localhost:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def _trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATES / "ca.pem"))


def test_a_page_is_returned_with_its_query(address: str) -> None:
    assert https_get(f"{address}/keys?a=b", timeout_s=5, max_bytes=100) == b"/keys?a=b"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/moved", "302 Found; redirects are not followed"),
        ("/missing", "404"),
        ("/keys/large", "more than 100 bytes"),
        ("/drip", "too long"),
        ("/rubbish", "does not speak HTTP"),
    ],
)
def test_anything_else_is_an_error_of_the_operating_system(address: str, path: str, problem: str) -> None:
    with pytest.raises(OSError, match=problem):
        https_get(address + path, timeout_s=0.5, max_bytes=100)


def test_an_untrusted_certificate_and_a_wrong_scheme_are_refused(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match="not an https address"):
        https_get("http://localhost/keys", timeout_s=1, max_bytes=100)
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(ssl.SSLCertVerificationError):
        https_get(f"{address}/keys", timeout_s=5, max_bytes=100)
