# SPDX-License-Identifier: Apache-2.0
"""No secret of a node's configuration gets out: not in errors, not in values, not in arguments (S8)."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config import load_config
from headrace.config.node_settings import NODE_SETTINGS
from headrace.config.secret_arguments import refuse_secrets, variable_of
from headrace.errors import ConfigError
from headrace.secret import Secret

SECRET = "s3cret-text"
NO_METRICS = {"headrace.metrics.port": "-1"}  # or settings of its TLS alone are refused
OTHER = "0ther-s3cret"
PASSWORDS = sorted(name for name, setting in NODE_SETTINGS.items() if setting.kind == "password")
NAMED = ("password", "secret", "token", ".key")


def _hidden(text: str) -> bool:
    return SECRET not in text and OTHER not in text


def test_every_setting_whose_name_says_secret_is_one() -> None:
    names = {name for name in NODE_SETTINGS if name.endswith(NAMED)}
    assert names <= set(PASSWORDS)
    assert "headrace.metrics.token" in names


@pytest.mark.parametrize("name", PASSWORDS)
def test_a_loaded_secret_prints_as_stars(name: str) -> None:
    config = load_config(None, {name: SECRET, **NO_METRICS}, None)
    assert config[name] == Secret(SECRET)
    assert config.text(name) == "***"
    assert _hidden(f"{config.explicit} {dict(config)} {config[name]!r} {config.notes}")


@pytest.mark.parametrize("name", PASSWORDS)
def test_two_variables_that_contradict_each_other_are_named_without_their_values(name: str) -> None:
    variable = variable_of(name)
    end = name.upper().replace(".", "_")
    both = {f"KAFKA_{end}": SECRET, f"KAFKA_CFG_{end}": OTHER}
    with pytest.raises(ConfigError, match=r"\*\*\*") as refused:
        load_config(None, {}, both)
    assert _hidden(str(refused.value))
    assert load_config(None, NO_METRICS, {variable: SECRET})[name].reveal() == SECRET


@pytest.mark.parametrize(
    "line",
    [
        f"ssl.key.pasword={SECRET}",
        f"ssl.key.password={SECRET}\nssl.key.password={OTHER}",
        f"listener.name.none.ssl.key.password={SECRET}",
        f"headrace.zookeeper.password={SECRET}\nlisteners=SSL://127.0.0.1:1",
        f"headrace.metrics.token={SECRET} {OTHER}",
        f"headrace.metrics.token={SECRET}\nheadrace.metrics.token.file=f",
        f"ssl.keystore.location=a\nssl.keystore.key={SECRET}\nlisteners=SSL://127.0.0.1:1",
    ],
)
def test_no_error_of_a_file_shows_a_secret(tmp_path: Path, line: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(line)
    with pytest.raises(ConfigError) as refused:
        load_config(file, {}, None)
    assert _hidden(str(refused.value))


@pytest.mark.parametrize("key", [*PASSWORDS, "listener.name.outside.ssl.key.password"])
def test_secrets_are_refused_as_arguments_with_advice(key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        refuse_secrets(["num.partitions", key], "--set")
    assert str(refused.value).startswith(f"--set {key}: it is a secret")
    assert f"--config FILE), or set the variable {variable_of(key)} and use --from-env" in str(refused.value)


def test_the_variable_of_the_advice_is_read() -> None:
    key = "listener.name.outside.ssl.key.password"
    variables = {"HEADRACE_LISTENERS": "OUTSIDE://127.0.0.1:1", variable_of(key): SECRET}
    config = load_config(None, {"listener.security.protocol.map": "OUTSIDE:PLAINTEXT"}, variables)
    assert config.of_listener("OUTSIDE", "ssl.key.password").reveal() == SECRET
