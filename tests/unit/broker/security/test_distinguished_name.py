# SPDX-License-Identifier: Apache-2.0
"""Subjects of certificates as Java writes them: RFC 2253."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.security.distinguished_name import subject_of
from headrace.errors import DecodeError
from tests.harness.live.certificates import Authority


def der(path: Path) -> bytes:
    pem = path.read_text()
    return ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERT") :])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("/CN=alice", "CN=alice"),
        ("/C=DE/ST=Berlin/L=Mitte/O=X/OU=sales/CN=alice", "CN=alice,OU=sales,O=X,L=Mitte,ST=Berlin,C=DE"),
        ("/DC=com/DC=example/UID=a1/CN=alice", "CN=alice,UID=a1,DC=example,DC=com"),
        ("/O=Example, Inc./CN=a+b=c;<d>\"e\"#", r"CN=a\+b\=c\;\<d\>\"e\"\#,O=Example\, Inc."),
        ("/CN= alice ", r"CN=\ alice\ "),
        ("/CN=Zoë Müller", "CN=Zoë Müller"),
        ("/emailAddress=a@b.c/CN=alice", "CN=alice,1.2.840.113549.1.9.1=#16056140622e63"),
        ("/serialNumber=7/CN=alice", "CN=alice,2.5.4.5=#130137"),
    ],
)  # fmt: skip
def test_a_subject_is_written_as_in_kafka(authority: Authority, subject: str, expected: str) -> None:
    escaped = subject.replace("+", "\\+")
    assert subject_of(der(authority.issue("someone", subject=escaped))) == expected


def test_several_attributes_of_one_part_are_joined(authority: Authority) -> None:
    path = authority.issue("both", subject="/O=Example/CN=alice+UID=a1")
    assert subject_of(der(path)) in ("CN=alice+UID=a1,O=Example", "UID=a1+CN=alice,O=Example")


@given(data=st.data())
def test_damaged_certificates_are_decode_errors(authority: Authority, data: st.DataObject) -> None:
    whole = bytearray(der(authority.ca))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DecodeError):
        assert isinstance(subject_of(bytes(whole[: data.draw(st.integers(0, len(whole)))])), str)
