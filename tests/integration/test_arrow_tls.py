# SPDX-License-Identifier: Apache-2.0
"""headrace.read and headrace.write over TLS: a node behind a proxy that ends TLS, as many are run."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace
from headrace.client.errors import ClientError
from tests.harness.live.node import NodeProcess
from tests.harness.live.tls_proxy import behind_tls_proxy

CERTIFICATES = Path(__file__).parents[1] / "data/tls"
TABLE = pa.table({"value": [b"%d" % n * 50 for n in range(20_000)]})


@pytest.fixture(params=[False, True], ids=["server", "mutual"])
def tls(request: pytest.FixtureRequest, start_node: Callable[..., NodeProcess]) -> Iterator[str]:
    with behind_tls_proxy(start_node, CERTIFICATES, asks_for_certificate=request.param) as address:
        yield address


def trusting(certificate: str | None) -> Any:
    context = ssl.create_default_context(cafile=CERTIFICATES / "ca.pem")
    if certificate is not None:
        context.load_cert_chain(CERTIFICATES / certificate)
    return headrace.Security(tls=context)


def test_write_and_read(tls: str) -> None:
    security = trusting("client.pem")
    assert headrace.write(TABLE, "t", bootstrap=tls, security=security, batch_bytes=100_000).records == 20_000
    back = headrace.topic("t", bootstrap=tls, security=security).select("value").to_arrow()
    assert sorted(back["value"].to_pylist()) == sorted(TABLE["value"].to_pylist())


@pytest.mark.parametrize("tls", [False], indirect=True)
def test_an_untrusted_certificate_is_an_error(tls: str) -> None:
    with pytest.raises(ClientError, match=r"localhost:\d+ is not trusted: .*; give the authority"):
        headrace.read("t", bootstrap=tls, security=headrace.Security(tls=True))
    port = tls.rpartition(":")[2]
    context = ssl.create_default_context(cafile=CERTIFICATES / "ca.pem")
    with pytest.raises(ClientError, match=r"127.0.0.2:\d+ is not trusted: .*mismatch|cannot connect"):
        headrace.read("t", bootstrap=f"127.0.0.2:{port}", security=headrace.Security(tls=context))


@pytest.mark.parametrize("tls", [True], indirect=True)
def test_a_missing_client_certificate_is_an_error(tls: str) -> None:
    with pytest.raises(ClientError, match=r"CERTIFICATE_REQUIRED|closed the connection|no TLS with"):
        headrace.read("t", bootstrap=tls, security=trusting(None), timeout_ms=1000)


@pytest.mark.parametrize("tls", [False], indirect=True)
def test_plaintext_to_a_tls_listener_is_an_error(tls: str) -> None:
    with pytest.raises(ClientError, match=r"closed the connection|not a Kafka reply"):
        headrace.read("t", bootstrap=tls, timeout_ms=1000)


def test_tls_to_a_plain_listener(bootstrap: str) -> None:
    with pytest.raises(ClientError, match=r"no TLS with|does this listener speak TLS"):
        headrace.read("t", bootstrap=bootstrap, security=trusting(None), timeout_ms=1000)
