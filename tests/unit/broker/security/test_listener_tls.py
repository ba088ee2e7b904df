# SPDX-License-Identifier: Apache-2.0
"""The certificates of a listener: from files or text, loaded again when they change, and kept when bad."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import pytest

from headrace.broker.security.tls import ListenerTls
from headrace.config import load_config
from headrace.errors import ConfigError, DecodeError
from headrace.principal import ANONYMOUS, user
from headrace.realworld import RealWorld
from tests.harness.live.certificates import Authority


def listener_tls(**settings: str) -> ListenerTls:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    config = load_config(None, {"listeners": "SSL://127.0.0.1:9093", **named}, None)
    return ListenerTls(RealWorld(), config, "SSL")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def reload(tls: ListenerTls) -> None:
    async def main() -> None:
        world = RealWorld()
        await tls.reload(world.tasks.thread("certificates"))
        await world.tasks.close()

    asyncio.run(main())


def test_changed_files_are_loaded_again(authority: Authority) -> None:
    pem = authority.issue("node")
    tls = listener_tls(ssl_keystore_location=str(pem), ssl_truststore_location=str(authority.ca))
    before = tls.server(), tls.client()
    reload(tls)
    assert (tls.server(), tls.client()) == before
    pem.write_bytes(authority.issue("other").read_bytes())
    reload(tls)
    assert tls.server() is not before[0]
    assert tls.client() is not before[1]
    after = tls.server()
    authority.ca.write_bytes(Authority(authority.directory, "another").ca.read_bytes())
    reload(tls)
    assert tls.server() is not after


def test_bad_files_are_logged_once_and_change_nothing(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    pem = authority.issue("node")
    good = pem.read_bytes()
    tls = listener_tls(ssl_keystore_location=str(pem))
    before = tls.server()
    pem.write_bytes(good[:200])
    reload(tls)
    reload(tls)
    pem.unlink()
    reload(tls)
    first, second = caplog.messages
    assert "the certificates of listener SSL cannot be used: there is no certificate" in first
    assert f"ssl.keystore.location={pem} cannot be read: No such file" in second
    assert tls.server() is before
    pem.write_bytes(good)
    reload(tls)
    assert tls.server() is before
    assert len(caplog.messages) == 2


def test_text_in_the_settings_is_as_good_as_files(authority: Authority) -> None:
    pem = authority.issue("node").read_text()
    tls = listener_tls(
        ssl_keystore_key=pem,
        ssl_keystore_certificate_chain=pem,
        ssl_truststore_certificates=authority.ca.read_text(),
        ssl_client_auth="required",
    )
    assert tls.server().verify_mode is ssl.CERT_REQUIRED


def test_a_node_does_not_start_with_certificates_it_cannot_use(tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    with pytest.raises(ConfigError, match=rf"ssl.keystore.location={missing} cannot be read: No such file"):
        listener_tls(ssl_keystore_location=str(missing))


def test_the_subject_becomes_a_user_by_the_rules(authority: Authority) -> None:
    pem = authority.issue("alice", subject="/C=DE/OU=sales/CN=Alice")
    text = pem.read_text()
    certificate = ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERT") :])
    plain = listener_tls(ssl_keystore_location=str(pem))
    assert plain.principal_of(certificate) == user("CN=Alice,OU=sales,C=DE")
    ruled = listener_tls(
        ssl_keystore_location=str(pem), ssl_principal_mapping_rules=r"RULE:^CN=(.*?),OU=sales.*$/$1/L"
    )
    assert ruled.principal_of(certificate) == user("alice")
    assert ruled.principal_of(None) == ANONYMOUS
    other = listener_tls(ssl_keystore_location=str(pem), ssl_principal_mapping_rules="RULE:CN=bob/bob/")
    with pytest.raises(DecodeError, match=r"no rule .* 'CN=Alice,OU=sales,C=DE' a user name"):
        other.principal_of(certificate)
