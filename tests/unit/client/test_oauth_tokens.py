# SPDX-License-Identifier: Apache-2.0
"""Tokens of an identity provider, asked over https: requests, failures, redirects, caching; and of a file."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from headrace.client.errors import ClientError
from headrace.client.oauth_tokens import ClientCredentials, Token, TokenCache, TokenFile
from headrace.secret import Secret

CERTIFICATES = Path(__file__).parents[2] / "data/tls"


class Provider:
    """Answers what `answers` holds, one after the other; the last one again and again."""

    def __init__(self):
        self.answers = [(200, {}, {"access_token": "t", "expires_in": 60})]
        self.asked = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                provider.asked.append((self.path, self.headers["Authorization"], parse_qs(body)))
                answers = provider.answers
                status, headers, document = answers.pop(0) if len(answers) > 1 else answers[0]
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(document if isinstance(document, bytes) else json.dumps(document).encode())

            def log_message(self, *_):
                pass

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(CERTIFICATES / "server.pem")
        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://localhost:{self._server.server_port}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def provider(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    made = Provider()
    yield made
    made.close()


def credentials(provider, **changes):
    given = {
        "endpoint": provider.url,
        "client_id": "app",
        "client_secret": Secret("s3:cret"),
        "authorities_file": str(CERTIFICATES / "ca.pem"),
        "timeout_ms": 5000,
    }
    return ClientCredentials(**{**given, **changes})


def jwt(**claims):
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.sig"


def test_the_grant_is_asked_for_as_java_does(provider):
    token = credentials(provider, scope="kafka").fetch()
    assert token.value.reveal() == "t"
    assert 0 < token.expires_s - time.time() <= 60
    ((path, authorization, form),) = provider.asked
    assert path == "/token"
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"app:s3:cret"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}


def test_the_login_is_percent_encoded_on_request(provider):
    credentials(provider, encodes_header=True).fetch()
    assert base64.b64decode(provider.asked[0][1].removeprefix("Basic ")) == b"app:s3%3Acret"


def test_a_token_without_a_lifetime_expires_with_its_claim(provider):
    provider.answers = [(200, {}, {"access_token": jwt(exp=12345)})]
    assert credentials(provider).fetch().expires_s == 12345


def test_a_passing_failure_is_retried(provider):
    provider.answers[:0] = [(503, {}, {})]
    assert credentials(provider).fetch().value.reveal() == "t"
    assert len(provider.asked) == 2


FAILURES = {
    "a wrong secret": ((401, {}, {"error": "invalid_client"}), "it answered HTTP 401", 1),
    "a broken provider": ((500, {}, {}), "it answered HTTP 500", 3),
    "no token": ((200, {}, {"error": "x"}), "its reply has no access_token", 1),
    "no JSON": ((200, {}, b"<html>"), "its reply is not a JSON object", 1),
    "no object": ((200, {}, ["t"]), "its reply is not a JSON object", 1),
}


@pytest.mark.parametrize(("answer", "said", "asked"), FAILURES.values(), ids=FAILURES)
def test_failures_are_said_without_the_secret(provider, answer, said, asked):
    provider.answers = [answer]
    with pytest.raises(ClientError, match=said) as caught:
        credentials(provider).fetch()
    assert "s3:cret" not in str(caught.value)
    assert len(provider.asked) == asked


def test_redirects_are_not_followed(provider):
    provider.answers = [(307, {"Location": provider.url + "/elsewhere"}, {})]
    with pytest.raises(ClientError, match="it answered HTTP 307"):
        credentials(provider).fetch()
    assert [path for path, *_ in provider.asked] == ["/token"]


def test_an_untrusted_provider_is_refused(provider):
    with pytest.raises(ClientError, match="certificate verify failed"):
        credentials(provider, authorities_file=None).fetch()
    assert provider.asked == []


def test_a_token_is_cached_until_shortly_before_it_expires(provider):
    now = [1000.0]
    fetched = []

    class Source:
        def fetch(self):
            fetched.append(now[0])
            return Token(value=Secret(f"t{len(fetched)}"), expires_s=now[0] + 100)

    cache = TokenCache(Source(), now_s=lambda: now[0])
    assert [cache.token().value.reveal() for _ in range(3)] == ["t1"] * 3
    now[0] += 79
    assert cache.token().value.reveal() == "t1"
    now[0] += 1
    assert cache.token().value.reveal() == "t2"
    assert fetched == [1000.0, 1080.0]


def test_a_file_is_read_again_when_its_token_expires(tmp_path):
    file = tmp_path / "token"
    file.write_text(jwt(exp=2000) + "\n")
    token = TokenFile(path=str(file)).fetch()
    assert (token.value.reveal(), token.expires_s) == (jwt(exp=2000), 2000)
    file.write_text("opaque")
    assert TokenFile(path=str(file)).fetch().expires_s > time.time()


def test_a_file_without_a_token_is_an_error(tmp_path):
    with pytest.raises(ClientError, match="cannot be read: No such file"):
        TokenFile(path=str(tmp_path / "none")).fetch()
    (tmp_path / "empty").write_text(" \n")
    with pytest.raises(ClientError, match="is empty"):
        TokenFile(path=str(tmp_path / "empty")).fetch()
