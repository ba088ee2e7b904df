# SPDX-License-Identifier: Apache-2.0
"""Settings of logins: per listener, and what is refused at start-up (S6, S9)."""

from __future__ import annotations

import pytest

from headrace.config import NodeConfig, load_config
from headrace.errors import ConfigError

SASL = {"listeners": "SASL_PLAINTEXT://127.0.0.1:9092"}
OAUTH = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "file:///keys.json",
    "sasl.oauthbearer.expected.audience": "kafka",
    "sasl.oauthbearer.expected.issuer": "https://issuer",
}


def load(*parts: dict[str, str], **environment: str) -> NodeConfig:
    return load_config(None, {key: text for part in parts for key, text in part.items()}, environment or None)


def test_a_listener_asks_for_scram_unless_told_otherwise() -> None:
    config = load(SASL)
    mechanisms = config.of_listener("SASL_PLAINTEXT", "sasl.enabled.mechanisms")
    assert mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert config.listeners[0].needs_login
    assert config.notes == ()


def test_a_listener_has_settings_of_its_own() -> None:
    two = {
        "listeners": "IN://127.0.0.1:1,OUT://127.0.0.1:2",
        "listener.security.protocol.map": "IN:SASL_PLAINTEXT,OUT:SASL_PLAINTEXT",
        "listener.name.out.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.out.connections.max.reauth.ms": "5000",
        "connections.max.reauth.ms": "9000",
    }
    config = load(two)
    assert config.of_listener("OUT", "sasl.enabled.mechanisms") == ("SCRAM-SHA-512",)
    assert config.of_listener("OUT", "connections.max.reauth.ms") == 5000
    assert config.of_listener("IN", "connections.max.reauth.ms") == 9000


def test_a_setting_of_a_listener_may_come_from_the_environment() -> None:
    config = load(
        {}, KAFKA_LISTENERS="SASL_PLAINTEXT://127.0.0.1:1",
        KAFKA_LISTENER_NAME_SASL__PLAINTEXT_SASL_ENABLED_MECHANISMS="SCRAM-SHA-256",
    )  # fmt: skip
    assert config.of_listener("SASL_PLAINTEXT", "sasl.enabled.mechanisms") == ("SCRAM-SHA-256",)


def test_a_listener_with_a_login_is_not_anonymous_and_without_tls_it_is_warned_of() -> None:
    config = load(
        {"listeners": "SASL_PLAINTEXT://0.0.0.0:9092", "advertised.listeners": "SASL_PLAINTEXT://k:1"}
    )
    (note,) = config.notes
    assert "without TLS" in note


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"sasl.enabled.mechanisms": "PLAIN"}, "PLAIN sends the password itself.*use SASL_SSL"),
        ({"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN"}, "sends the password"),
        ({"sasl.enabled.mechanisms": ""}, "names no mechanism"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-1"}, "must be one of: SCRAM-SHA-256"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-256"}, "is named twice"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "Kerberos is not served"),
        ({"listener.name.out.connections.max.reauth.ms": "1"}, "OUT is not one of the listeners"),
        ({**OAUTH, "sasl.oauthbearer.jwks.endpoint.url": "http://issuer/keys"}, "must be https://HOST"),
        ({**OAUTH, "sasl.oauthbearer.jwks.endpoint.url": "https://u:p@issuer/keys"}, "must be https://HOST"),
        ({**OAUTH, "sasl.oauthbearer.jwks.endpoint.url": "https://[issuer/keys"}, "must be https://HOST"),
        ({**OAUTH, "sasl.oauthbearer.jwks.endpoint.url": "file:keys.json"}, "must be https://HOST"),
        (
            {**OAUTH, "listeners": "SASL_PLAINTEXT://k:1"},
            "OAUTHBEARER sends the token itself.*bind it to 127.0.0.1",
        ),
        *(({name: text for name, text in OAUTH.items() if name != left_out}, f"{left_out}: not set")
          for left_out in list(OAUTH)[1:]),
    ],
)  # fmt: skip
def test_what_would_give_secrets_away_or_cannot_work_is_refused(settings, problem) -> None:
    with pytest.raises(ConfigError, match=problem):
        load(SASL, settings)


def test_tokens_are_accepted_on_the_loopback_without_tls() -> None:
    assert load(SASL, OAUTH)["sasl.oauthbearer.expected.audience"] == ("kafka",)
