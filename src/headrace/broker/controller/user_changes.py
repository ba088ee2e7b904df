# SPDX-License-Identifier: Apache-2.0
"""Changes of SCRAM credentials: works out the new credentials of a user, or why they are refused.

Pure: present credentials and changes in, new ones or an error out. Codes and rules of Kafka's controller.
Read next: handlers/users.py.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.coordination.documents import user_key
from headrace.coordination.store import is_key
from headrace.errors import ApiError
from headrace.scram_credential import (
    FEWEST_ITERATIONS,
    HASH_NAMES,
    MOST_ITERATIONS,
    SHA_256,
    SHA_512,
    UserCredentials,
    credential_of,
)
from headrace.wire.error_codes import ErrorCode

MECHANISM_NUMBERS = {1: SHA_256, 2: SHA_512}
"""Of the protocol."""
_LONGEST_SALT = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    user: str
    mechanism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsertion:
    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes = field(repr=False)


UserChange = Deletion | Upsertion


def altered_user(present: UserCredentials, changes: Sequence[UserChange]) -> UserCredentials | ApiError:
    """The new credentials of one user; with one wrong change, none is made."""
    times = Counter(change.mechanism for change in changes)
    altered = present
    try:
        for change in changes:
            if times[change.mechanism] > 1:
                raise _duplicate()
            altered = _with(altered, change)
    except ApiError as refusal:
        return refusal
    return altered


def _with(present: UserCredentials, change: UserChange) -> UserCredentials:
    mechanism = _check_user_and_mechanism(change)
    if isinstance(change, Deletion):
        if mechanism not in present:
            message = "Attempt to delete a user credential that does not exist"
            raise ApiError(ErrorCode.resource_not_found, message)
        return {name: credential for name, credential in present.items() if name != mechanism}
    hash_name = HASH_NAMES[mechanism]
    _check_upsertion(change, hash_name)
    credential = credential_of(hash_name, change.salted_password, change.salt, change.iterations)
    return {**present, mechanism: credential}


def _check_user_and_mechanism(change: UserChange) -> str:
    if not change.user:
        raise _unacceptable("Username must not be empty")
    if not is_key(user_key(change.user)):
        raise _unacceptable("Username is too long")
    mechanism = MECHANISM_NUMBERS.get(change.mechanism)
    if mechanism is None:
        raise ApiError(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
    return mechanism


def _check_upsertion(change: Upsertion, hash_name: str) -> None:
    if change.iterations < FEWEST_ITERATIONS:
        raise _unacceptable("Too few iterations")
    if change.iterations > MOST_ITERATIONS:
        raise _unacceptable("Too many iterations")
    if not 0 < len(change.salt) <= _LONGEST_SALT:
        raise _unacceptable(f"The salt must have 1 to {_LONGEST_SALT} bytes")
    if len(change.salted_password) != hashlib.new(hash_name).digest_size:
        raise _unacceptable("The salted password is not of the mechanism's length")


def _duplicate() -> ApiError:
    message = "A user credential cannot be altered twice in the same request"
    return ApiError(ErrorCode.duplicate_resource, message)


def _unacceptable(message: str) -> ApiError:
    return ApiError(ErrorCode.unacceptable_credential, message)
