# SPDX-License-Identifier: Apache-2.0
"""Settings of the metrics endpoint: which are refused, and which are warned of."""

from __future__ import annotations

import pytest

from headrace.config import load_config
from headrace.errors import ConfigError

OUTSIDE = {"headrace.metrics.host": "0.0.0.0"}
TLS = {"headrace.metrics.security.protocol": "SSL"}
WITH_KEY = {**TLS, "headrace.metrics.ssl.keystore.location": "metrics.pem"}
MUTUAL = {**WITH_KEY, "headrace.metrics.ssl.client.auth": "required"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (OUTSIDE, "command line: headrace.metrics.host=0.0.0.0: other machines may reach it"),
        ({**OUTSIDE, **WITH_KEY}, "without authentication. Set headrace.metrics.token.file"),
        (TLS, "command line: headrace.metrics.security.protocol=SSL: there is no certificate"),
        ({**TLS, "ssl.keystore.key": "k"}, "there is no certificate"),
        (MUTUAL, "headrace.metrics.ssl.client.auth=required: name the authorities"),
        ({"headrace.metrics.ssl.keystore.location": "a"}, "has no effect without"),
        ({"headrace.metrics.ssl.client.auth": "required"}, "has no effect without"),
        ({"headrace.metrics.token": "a", "headrace.metrics.token.file": "f"}, "keep one of the two"),
        ({"headrace.metrics.token": "two words"}, r"Invalid value \*\*\* .*only letters, digits"),
        ({"headrace.metrics.token": ""}, "it is empty"),
        ({"headrace.metrics.security.protocol": "SASL_SSL"}, "must be one of: PLAINTEXT, SSL"),
    ],
)
def test_what_leaves_the_endpoint_open_or_has_no_effect_is_refused(
    settings: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(None, settings, None)


@pytest.mark.parametrize(
    "settings",
    [
        {**OUTSIDE, **WITH_KEY, "headrace.metrics.token": "abc"},
        {**OUTSIDE, **MUTUAL, "ssl.truststore.location": "ca.pem"},
        {**OUTSIDE, "listeners.allow.anonymous": "true"},
        {**OUTSIDE, "headrace.metrics.port": "-1"},
        {**TLS, "ssl.keystore.location": "node.pem"},
        {**TLS, "ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"},
    ],
)
def test_what_authenticates_or_is_allowed_is_accepted_in_silence(settings: dict[str, str]) -> None:
    assert load_config(None, settings, None).notes == ()


def test_a_token_that_travels_in_clear_is_warned_of() -> None:
    (note,) = load_config(None, {**OUTSIDE, "headrace.metrics.token.file": "token"}, None).notes
    assert "whoever reads the traffic learns the token" in note


def test_tls_settings_of_the_endpoint_come_before_those_of_the_node() -> None:
    config = load_config(
        None, {**WITH_KEY, "ssl.keystore.location": "node.pem", "ssl.truststore.location": "ca.pem"}, None
    )
    assert config.key_of_metrics("ssl.keystore.location") == "headrace.metrics.ssl.keystore.location"
    assert config.key_of_metrics("ssl.truststore.location") == "ssl.truststore.location"


def test_client_certificates_that_listeners_require_are_not_asked_of_probes() -> None:
    settings = {**WITH_KEY, "ssl.client.auth": "required", "ssl.truststore.location": "ca.pem"}
    config = load_config(None, settings, None)
    assert config[config.key_of_metrics("ssl.client.auth")] == "none"


def test_a_container_names_the_token_by_a_variable() -> None:
    config = load_config(None, {}, {"HEADRACE_METRICS_TOKEN": "abc"})
    assert config["headrace.metrics.token"].reveal() == "abc"
