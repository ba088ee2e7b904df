# SPDX-License-Identifier: Apache-2.0
"""A Secret is shown nowhere, and still works as a value."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from headrace.secret import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    user: str
    password: Secret


def test_it_prints_as_stars_everywhere():
    login = Login(user="ann", password=Secret("s3cret"))
    shown = [repr(login), str(login.password), f"{login.password}", f"{login.password!r:>5}"]
    assert not [text for text in shown if "s3cret" in text]
    assert "***" in repr(login)


def test_it_is_a_value_that_travels():
    secret = Secret("s3cret")
    assert pickle.loads(pickle.dumps(secret)).reveal() == "s3cret"
    assert {secret: 1}[Secret("s3cret")] == 1
    assert secret != Secret("other")
    assert secret != "s3cret"
    assert not Secret("")
