# SPDX-License-Identifier: Apache-2.0
"""Text to value and back, with Kafka's words for what is wrong."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import NODE_SETTINGS, TOPIC_SETTINGS, Setting
from headrace.config.setting import at_least, between, one_of, some_of
from headrace.errors import ConfigError

ALL_SETTINGS = [*NODE_SETTINGS.values(), *TOPIC_SETTINGS.values()]


def _setting(kind, validator=None):
    return Setting(name="some.key", kind=kind, default=None, doc="", scope="node", validator=validator)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "42", 42),
        ("int", " -1 ", -1),
        ("long", "9223372036854775807", 2**63 - 1),
        ("short", "-32768", -32768),
        ("double", "0.25", 0.25),
        ("boolean", "TRUE", True),
        ("boolean", "false", False),
        ("string", " CreateTime ", "CreateTime"),
        ("list", "compact, delete", ("compact", "delete")),
        ("list", "", ()),
    ],
)
def test_text_becomes_a_typed_value(kind, text, value):
    assert _setting(kind).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("int", "2147483648", "Not a number of type INT"),
        ("int", "1_000", "Not a number of type INT"),
        ("int", "١", "Not a number of type INT"),
        ("int", "1.5", "Not a number of type INT"),
        ("int", "", "Not a number of type INT"),
        ("int", "--1", "Not a number of type INT"),
        ("long", "9" * 5000, "Not a number of type LONG"),
        ("long", "1h", "Not a number of type LONG"),
        ("short", "32768", "Not a number of type SHORT"),
        ("double", "nan", "Not a number of type DOUBLE"),
        ("double", "half", "Not a number of type DOUBLE"),
        ("boolean", "yes", "Expected value to be either true or false"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_kafkas_message(kind, text, problem):
    with pytest.raises(ConfigError, match=problem) as caught:
        _setting(kind).parse(text)
    assert "some.key" in str(caught.value)


@pytest.mark.parametrize(
    ("validator", "kind", "text", "problem"),
    [
        (at_least(1), "int", "0", "Value must be at least 1"),
        (between(0, 1), "double", "-0.1", "Value must be at least 0"),
        (between(0, 1), "double", "1.5", "Value must be no more than 1"),
        (one_of("ack", "os"), "string", "ACK", "String must be one of: ack, os"),
        (some_of("compact", "delete"), "list", "compact,keep", "String must be one of: compact, delete"),
        (some_of("compact", "delete"), "list", "delete,delete", "delete is named twice"),
    ],
)
def test_a_value_outside_the_range_is_refused(validator, kind, text, problem):
    with pytest.raises(ConfigError, match=problem):
        _setting(kind, validator).parse(text)


def test_a_password_is_never_shown_in_an_error():
    refuse = at_least(0)
    setting = Setting(
        name="p",
        kind="password",
        default=None,
        doc="",
        scope="node",
        validator=type(refuse)(text="", problem=lambda value: "too short"),
    )
    with pytest.raises(ConfigError) as caught:
        setting.parse("hunter2")
    assert "hunter2" not in str(caught.value)
    assert "***" in str(caught.value)


@pytest.mark.parametrize("setting", ALL_SETTINGS, ids=lambda setting: f"{setting.scope} {setting.name}")
def test_every_default_obeys_its_own_rule(setting):
    text = setting.format(setting.default)
    if text is not None:
        assert setting.parse(text) == setting.default


@pytest.mark.parametrize("setting", ALL_SETTINGS, ids=lambda setting: f"{setting.scope} {setting.name}")
@given(text=st.text(max_size=30))
def test_any_text_is_either_a_value_or_a_config_error(setting, text):
    with contextlib.suppress(ConfigError):
        setting.parse(text)


def test_topic_defaults_are_those_of_the_node_setting_behind_them():
    for setting in TOPIC_SETTINGS.values():
        found = [(NODE_SETTINGS[synonym.name].default, synonym.factor) for synonym in setting.synonyms]
        values = [
            default if factor == 1 else default * factor for default, factor in found if default is not None
        ]
        assert not setting.synonyms or values[0] == setting.default, setting.name
