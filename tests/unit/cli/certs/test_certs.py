# SPDX-License-Identifier: Apache-2.0
"""`headrace certs make`: certificates that servers and clients accept, private keys, nothing overwritten."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import stat
import sys

import pytest

from headrace.cli import main
from headrace.client.client_config import configured_security, read_client_config

pytest.importorskip("cryptography")


def make(folder, *options):
    return main.run(["certs", "make", "--out", str(folder), *options])


@pytest.fixture
def certs(tmp_path):
    folder = tmp_path / "certs"
    assert make(folder, "--host", "localhost,127.0.0.1", "--client", "ann") == 0
    return folder


def server_context(folder, node="localhost"):
    """Made from the node's settings, as a broker would."""
    settings = read_client_config(folder / "nodes" / node / "server.properties")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=settings["ssl.truststore.location"])
    context.load_cert_chain(settings["ssl.keystore.location"])
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    return context


async def subject_seen(context, client, host="localhost"):
    """Connects, and returns the subject of the client's certificate as the server sees it."""
    seen = asyncio.get_running_loop().create_future()

    async def serve(reader, writer):
        seen.set_result(writer.get_extra_info("peercert")["subject"])
        writer.write(b"x")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=host)
        heard = await reader.read(1)  # with TLS 1.3 a refused certificate is heard of here
        writer.close()
        if not heard:
            raise ConnectionError("the server hung up")
        return await asyncio.wait_for(seen, 5)
    finally:
        server.close()


@pytest.mark.parametrize("settings", ["client.properties", "librdkafka.conf"])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_node_and_a_client_accept_each_other_by_the_settings_beside_them(certs, settings, host):
    client = configured_security(certs / "clients/ann" / settings).security().tls
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    assert asyncio.run(subject_seen(server_context(certs), client, host)) == ((("commonName", "ann"),),)


def test_another_host_name_is_refused(certs):
    client = configured_security(certs / "clients/ann/client.properties").security().tls
    with pytest.raises(ssl.SSLCertVerificationError, match=r"(?i)mismatch"):
        asyncio.run(subject_seen(server_context(certs), client, "elsewhere"))


@pytest.mark.parametrize("settings", ["client.properties", "librdkafka.conf"])
def test_a_client_without_a_certificate_trusts_the_authority_and_is_refused_where_one_is_required(
    certs, settings
):
    client = configured_security(certs / settings).security().tls
    with pytest.raises((ssl.SSLError, ConnectionError)):
        asyncio.run(subject_seen(server_context(certs), client))


def test_a_client_certificate_does_not_do_for_a_node(certs):
    impostor = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    impostor.load_cert_chain(certs / "clients/ann/keystore.pem")
    client = configured_security(certs / "client.properties").security().tls
    client.check_hostname = False
    with pytest.raises(ssl.SSLCertVerificationError, match=r"(?i)purpose"):
        asyncio.run(subject_seen(impostor, client))


def test_keys_and_settings_are_private(certs):
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in certs.rglob("*")}
    public = {path for path, mode in modes.items() if path.is_file() and mode != 0o600}
    assert {path.name for path in public} == {"ca.pem", "certificate.pem"}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    for path in public:
        assert "PRIVATE KEY" not in path.read_text()


def test_a_later_call_uses_the_same_authority_and_keeps_the_rest(certs, capsys):
    before = {path: path.read_bytes() for path in certs.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert make(certs, "--client", "bob", "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert made["new_authority"] is False
    assert made["clients"] == {"bob": str(certs / "clients/bob")}
    assert {path: path.read_bytes() for path in before} == before
    client = configured_security(certs / "clients/bob/client.properties").security().tls
    assert asyncio.run(subject_seen(server_context(certs), client)) == ((("commonName", "bob"),),)


def test_nothing_is_overwritten_without_asking(certs, capsys):
    key = certs / "clients/ann/key.pem"
    before = key.read_bytes()
    assert make(certs, "--client", "ann") == 1
    assert re.search(r"confirmation needed: replace .*clients/ann; add --yes", capsys.readouterr().err)
    assert key.read_bytes() == before
    assert make(certs, "--client", "ann", "--yes") == 0
    assert key.read_bytes() != before


def test_a_broken_authority_is_not_replaced(certs, capsys):
    (certs / "ca.key").write_text("no key")
    assert make(certs, "--client", "bob") == 1
    assert "cannot be used" in capsys.readouterr().err
    (certs / "ca.key").unlink()
    assert make(certs, "--client", "bob") == 1
    assert not (certs / "clients/bob").exists()


def test_certificates_are_valid_for_the_given_time(certs):
    from cryptography import x509

    assert make(certs, "--host", "b2.example.com,10.0.0.2,*.b2.example.com", "--days", "30") == 0
    made = certs / "nodes/b2.example.com/certificate.pem"
    certificate = x509.load_pem_x509_certificate(made.read_bytes())
    assert (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days == 30
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["b2.example.com", "*.b2.example.com"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.2"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "../x"], "'../x' is not a host name"),
        (["--host", ","], "is not a host name"),
        (["--client", "../x"], "'../x': use letters"),
        (["--client", ".."], "use letters"),
        (["--days", "0"], "--days"),
    ],
)
def test_names_that_could_be_paths_are_refused(options, said, tmp_path, capsys):
    assert make(tmp_path / "certs", *options) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "certs").exists()


def test_the_missing_package_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert make(tmp_path / "certs") == 1
    assert "pip install headrace[certs]" in capsys.readouterr().err
