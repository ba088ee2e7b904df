# SPDX-License-Identifier: Apache-2.0
"""Apache Kafka's Java client over TLS, with a client certificate, and how Java writes its name."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.broker.security.distinguished_name import subject_of
from headrace.cluster.engines.kafka import KafkaEngine
from tests.compat.java_tool import JavaTool
from tests.harness.live.certificates import Authority
from tests.harness.live.tls_node import TlsNode

pytestmark = pytest.mark.compat_jvm

SUBJECTS = (
    "/C=DE/ST=Berlin/L=Mitte/O=Example, Inc./OU=sales/CN=alice",
    "/DC=com/DC=example/UID=a1/CN= Zoë Müller ",
    '/emailAddress=a@b.c/street=Weg 1/title=Dr/CN=a\\+b=c;<d>"e"#',
    "/O=Example/CN=alice+UID=a1",
)
PROGRAM = """
import java.io.FileInputStream;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;

public class Subjects {
    public static void main(String[] files) throws Exception {
        for (String file : files) {
            X509Certificate certificate = (X509Certificate) CertificateFactory.getInstance("X.509")
                .generateCertificate(new FileInputStream(file));
            System.out.write((certificate.getSubjectX500Principal().getName() + "\\n").getBytes("UTF-8"));
        }
        System.out.flush();
    }
}
"""


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_the_console_tools_produce_and_consume(
    kafka_engine: KafkaEngine, tmp_path: Path, version: str
) -> None:
    with TlsNode(tmp_path, authority=Authority(tmp_path / "ca")) as tls:
        tls.create_topic("t")
        settings = tmp_path / "client.properties"
        settings.write_text(
            f"security.protocol=SSL\nssl.enabled.protocols={version}\n"
            f"ssl.keystore.type=PEM\nssl.keystore.location={tls.authority.issue('alice')}\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={tls.authority.ca}\n"
        )
        java = JavaTool(kafka_engine, tls.address)
        lines = [f"{number} {'x' * 1000}" for number in range(500)]
        config = ("--command-config", str(settings))
        java("console-producer", "--topic", "t", *config, stdin="\n".join(lines) + "\n")
        arguments = ("--partition", "0", "--offset", "earliest", "--max-messages", str(len(lines)))
        printed = java("console-consumer", "--topic", "t", *arguments, "--timeout-ms", "20000", *config)
        assert printed.splitlines() == lines


def test_names_are_written_as_java_writes_them(java_source: Callable[..., str], tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    for number, subject in enumerate(SUBJECTS):
        authority.issue(str(number), subject=subject)
    files = [authority.directory / f"{number}.crt" for number in range(len(SUBJECTS))]
    program = tmp_path / "Subjects.java"
    program.write_text(PROGRAM)
    expected = [subject_of(ssl.PEM_cert_to_DER_cert(file.read_text())) for file in files]
    assert java_source(program, *map(str, files)).splitlines() == expected
