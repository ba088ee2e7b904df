# SPDX-License-Identifier: Apache-2.0
"""Contexts from PEM text, and what is said when the text is not what it must be."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import ConfigError
from headrace.tls.context import client_context, server_context
from headrace.world import TlsMaterial
from tests.harness.live.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def node(authority: Authority) -> bytes:
    return authority.issue("node").read_bytes()


@pytest.fixture
def material(authority: Authority, node: bytes) -> TlsMaterial:
    return TlsMaterial(certificate_chain=node, private_key=node, authorities=authority.ca.read_bytes())


def test_versions_are_those_enabled_and_nothing_older(material: TlsMaterial) -> None:
    context = server_context(material)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.maximum_version is ssl.TLSVersion.TLSv1_3
    context = server_context(replace(material, protocols=("TLSv1.3",)))
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    context = client_context(replace(material, protocols=("TLSv1.2",)))
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("asked", "mode"),
    [("none", ssl.CERT_NONE), ("requested", ssl.CERT_OPTIONAL), ("required", ssl.CERT_REQUIRED)],
)
def test_client_certificates_are_asked_for_as_configured(
    material: TlsMaterial, asked: str, mode: ssl.VerifyMode
) -> None:
    assert server_context(replace(material, client_auth=asked)).verify_mode is mode


def test_nodes_check_each_other_and_host_names_unless_told_not_to(material: TlsMaterial) -> None:
    context = client_context(material)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    context = client_context(replace(material, check_host_names=False))
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)
    client_context(replace(material, authorities=None))


def test_text_that_lost_its_lines_in_a_properties_file_is_read(material: TlsMaterial, node: bytes) -> None:
    for joined in (node.replace(b"\n", b" "), node.replace(b"\n", b"")):
        server_context(replace(material, certificate_chain=joined, private_key=joined))


def test_comments_in_any_script_are_passed_over(material: TlsMaterial) -> None:
    assert material.authorities is not None
    server_context(replace(material, authorities="# Zürich\n".encode() + material.authorities))


def test_an_encrypted_key_needs_its_password(
    authority: Authority, material: TlsMaterial, tmp_path: Path
) -> None:
    for options in (["pkcs8", "-topk8"], ["ec", "-aes128"]):
        secret = ["-passout", "pass:secret"]
        command = ["openssl", *options, "-in", str(authority.directory / "node.key"), *secret]
        key = subprocess.run(command, check=True, capture_output=True).stdout
        locked = replace(material, private_key=key)
        server_context(replace(locked, key_password="secret"))
        with pytest.raises(ConfigError, match=r"is encrypted: set ssl.key.password"):
            server_context(locked)
        with pytest.raises(ConfigError, match=r"cannot be read with ssl.key.password") as caught:
            server_context(replace(locked, key_password="wrong one"))
        assert "wrong one" not in str(caught.value)


def test_what_is_missing_or_wrong_is_named(authority: Authority, material: TlsMaterial) -> None:
    other = authority.issue("other").read_bytes()
    certificate = (authority.directory / "node.crt").read_bytes()
    cut = certificate[:100] + b"-----END CERTIFICATE-----"
    for change, message in (
        ({"certificate_chain": b""}, "there is no certificate"),
        ({"private_key": certificate}, "there are 0 private keys"),
        ({"private_key": material.private_key + other}, "there are 2 private keys"),
        ({"private_key": other}, "not that of the first certificate"),
        ({"certificate_chain": cut}, "OpenSSL does not accept"),
        ({"authorities": b"nothing"}, "no certificate .* in the trust store"),
        ({"authorities": cut}, "OpenSSL does not accept"),
    ):
        wrong = replace(material, **change)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=message):
            server_context(replace(wrong, client_auth="required"))
        with pytest.raises(ConfigError, match=message):
            client_context(wrong)


def test_only_a_listener_that_asks_for_certificates_has_authorities_to_search(material: TlsMaterial) -> None:
    for asked, count in (("none", 0), ("requested", 1), ("required", 1)):
        context = server_context(replace(material, client_auth=asked))
        assert context.cert_store_stats()["x509"] == count


def test_the_key_and_its_password_are_not_in_the_representation(material: TlsMaterial) -> None:
    shown = repr(replace(material, key_password="secret"))
    assert "secret" not in shown
    assert "PRIVATE" not in shown
