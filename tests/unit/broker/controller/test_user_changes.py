# SPDX-License-Identifier: Apache-2.0
"""Which changes of SCRAM credentials are accepted, with Kafka's error codes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.broker.controller.user_changes import Deletion, Upsertion, UserChange, altered_user
from headrace.errors import ApiError
from headrace.scram_credential import credential_of, make_credential
from headrace.wire.error_codes import ErrorCode

NEW = Upsertion(user="ann", mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32))
NEW_512 = replace(NEW, mechanism=2, iterations=16384, salted_password=bytes(64))


def refused(*changes: UserChange) -> ErrorCode:
    outcome = altered_user({}, changes)
    assert isinstance(outcome, ApiError)
    return outcome.code


def test_a_credential_is_added_beside_the_other_mechanism_and_deleted_again() -> None:
    first = altered_user({}, [NEW])
    assert first == {"SCRAM-SHA-256": credential_of("sha256", bytes(32), b"salt", 4096)}
    both = altered_user(first, [NEW_512])
    assert set(both) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert altered_user(both, [Deletion(user="ann", mechanism=1)]) == {"SCRAM-SHA-512": both["SCRAM-SHA-512"]}
    gone = [Deletion(user="ann", mechanism=1), Deletion(user="ann", mechanism=2)]
    assert altered_user(both, gone) == {}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (replace(NEW, user=""), ErrorCode.unacceptable_credential),
        (replace(NEW, user="n" * 256), ErrorCode.unacceptable_credential),
        (replace(NEW, iterations=4095), ErrorCode.unacceptable_credential),
        (replace(NEW, iterations=16385), ErrorCode.unacceptable_credential),
        (replace(NEW, salt=b""), ErrorCode.unacceptable_credential),
        (replace(NEW, salt=bytes(1025)), ErrorCode.unacceptable_credential),
        (replace(NEW, salted_password=bytes(64)), ErrorCode.unacceptable_credential),
        (replace(NEW, mechanism=0), ErrorCode.unsupported_sasl_mechanism),
        (Deletion(user="ann", mechanism=3), ErrorCode.unsupported_sasl_mechanism),
        (Deletion(user="ann", mechanism=1), ErrorCode.resource_not_found),
    ],
)
def test_a_wrong_change_is_refused_with_kafkas_code(change: UserChange, code: ErrorCode) -> None:
    assert refused(change) is code


def test_two_changes_of_one_credential_are_refused_and_none_is_made() -> None:
    assert refused(NEW, Deletion(user="ann", mechanism=1)) is ErrorCode.duplicate_resource
    assert refused(NEW, NEW) is ErrorCode.duplicate_resource


def test_nothing_of_a_password_is_printed() -> None:
    secret = make_credential("sha256", b"secret", b"salt", 4096)
    assert "key" not in repr(secret)
    assert "salted_password" not in repr(NEW)
