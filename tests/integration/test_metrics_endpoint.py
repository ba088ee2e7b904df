# SPDX-License-Identifier: Apache-2.0
"""The operators' endpoint of a live node: https, the token, client certificates, files that change."""

from __future__ import annotations

import re
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.harness.live.certificates import Authority
from tests.harness.live.node import NodeProcess
from tests.harness.waiting import wait_until


class Endpoint:
    """A node whose endpoint uses TLS, with a token in a file."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self.authority = Authority(directory / "ca")
        self.token_file = directory / "token"
        self.token_file.write_text("first-token\n")
        self.certificate = self.authority.issue("metrics")
        self.node = NodeProcess(
            directory,
            settings={
                "headrace.metrics.security.protocol": "SSL",
                "headrace.metrics.ssl.keystore.location": str(self.certificate),
                "headrace.metrics.token.file": str(self.token_file),
                **(settings or {}),
            },
        )

    def url(self) -> str:
        found: list[str] = []
        wait_until(
            lambda: found.extend(re.findall(r"https://\S+/metrics", self.node.log_path.read_text())) or found,
            "the ready line",
            timeout_s=20,
        )
        return found[0].replace("127.0.0.1", "localhost").removesuffix("/metrics")

    def status(self, path: str, token: str | None = None, tls: ssl.SSLContext | None = None) -> int:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(self.url() + path, headers=headers)
        context = tls or self.authority.client_context()
        try:
            with urllib.request.urlopen(request, timeout=10, context=context) as reply:
                reply.read()
                return int(reply.status)
        except urllib.error.HTTPError as error:
            return error.code


def test_metrics_by_https_need_the_token_and_probes_do_not(tmp_path: Path) -> None:
    endpoint = Endpoint(tmp_path)
    with endpoint.node:
        assert endpoint.status("/metrics", "first-token") == 200
        assert endpoint.status("/metrics") == 401
        assert endpoint.status("/metrics", "other-token") == 401
        assert (endpoint.status("/healthz"), endpoint.status("/readyz")) == (200, 200)
        with pytest.raises(OSError):  # http on the https port
            urllib.request.urlopen(endpoint.url().replace("https", "http"), timeout=10)
        assert "refused 127.0.0.1: /metrics without the token" in endpoint.node.log_tail()
        assert "first-token" not in endpoint.node.log_tail()


def test_a_new_token_and_a_new_certificate_are_used_without_a_restart(tmp_path: Path) -> None:
    endpoint = Endpoint(tmp_path)
    with endpoint.node:
        endpoint.token_file.write_text("second-token")
        wait_until(lambda: endpoint.status("/metrics", "second-token") == 200, "the new token", timeout_s=20)
        assert endpoint.status("/metrics", "first-token") == 401
        other = Authority(tmp_path / "other")
        other.issue("metrics").rename(endpoint.certificate)
        context = other.client_context()
        wait_until(lambda: _trusts(endpoint, context), "the new certificate", timeout_s=20)


def _trusts(endpoint: Endpoint, context: ssl.SSLContext) -> bool:
    try:
        return endpoint.status("/readyz", tls=context) == 200
    except urllib.error.URLError:
        return False


def test_client_certificates_can_be_required(tmp_path: Path) -> None:
    endpoint = Endpoint(
        tmp_path,
        {
            "headrace.metrics.ssl.client.auth": "required",
            "headrace.metrics.ssl.truststore.location": str(tmp_path / "ca" / "ca.pem"),
        },
    )
    with endpoint.node:
        with pytest.raises(OSError):
            endpoint.status("/readyz")
        scraper = endpoint.authority.client_context(endpoint.authority.issue("scraper"))
        assert endpoint.status("/metrics", "first-token", scraper) == 200
        assert endpoint.status("/metrics", "wrong", scraper) == 401


def test_an_unreadable_certificate_stops_the_start(tmp_path: Path) -> None:
    endpoint = Endpoint(tmp_path, {"headrace.metrics.ssl.keystore.location": str(tmp_path / "none.pem")})
    ended = endpoint.node.run_to_end()
    assert ended.returncode != 0
    assert "headrace.metrics.ssl.keystore.location=" in ended.stderr
    assert "No such file" in ended.stderr
