# SPDX-License-Identifier: Apache-2.0
"""Settings of TLS listeners: which are refused, which belong to one listener, what is never shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.config import NodeConfig, load_config
from headrace.config.security.principal_mapping import map_name, parse_rules
from headrace.errors import ConfigError

SSL = {"listeners": "SSL://127.0.0.1:9093"}
WITH_KEY = {**SSL, "ssl.keystore.location": "node.pem"}
OPEN = {"listeners": "SSL://0.0.0.0:9093", "advertised.listeners": "SSL://kafka:9093"}
ALICE = "CN=alice,OU=sales,O=Example\\, Inc.,C=DE"


def _load(settings: dict[str, str], environment: dict[str, str] | None = None) -> NodeConfig:
    return load_config(None, settings, environment)


def test_a_listener_has_its_own_settings_before_those_of_the_node() -> None:
    config = _load(
        {
            "listeners": "INSIDE://127.0.0.1:1,OUTSIDE://127.0.0.1:2",
            "listener.security.protocol.map": "INSIDE:SSL,OUTSIDE:SSL",
            "ssl.keystore.location": "node.pem",
            "ssl.truststore.location": "ca.pem",
            "listener.name.inside.ssl.client.auth": "required",
            "listener.name.inside.ssl.keystore.location": "inside.pem",
        }
    )
    assert config.of_listener("INSIDE", "ssl.client.auth") == "required"
    assert config.of_listener("OUTSIDE", "ssl.client.auth") == "none"
    assert config.of_listener("INSIDE", "ssl.keystore.location") == "inside.pem"
    assert config.of_listener("OUTSIDE", "ssl.keystore.location") == "node.pem"
    assert config.key_of("INSIDE", "ssl.client.auth") == "listener.name.inside.ssl.client.auth"
    assert config.key_of("OUTSIDE", "ssl.client.auth") == "ssl.client.auth"


def test_the_environment_sets_them_as_in_containers() -> None:
    variables = {
        "KAFKA_LISTENERS": "SSL://127.0.0.1:9093",
        "KAFKA_LISTENER_NAME_SSL_SSL_KEYSTORE_LOCATION": "node.pem",
        "KAFKA_LISTENER_NAME_CONTROLLER_SSL_KEYSTORE_LOCATION": "controller.pem",
    }
    config = _load({}, variables)
    assert config.of_listener("SSL", "ssl.keystore.location") == "node.pem"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (SSL, "listeners: SSL uses TLS and has no certificate: set ssl.keystore.location"),
        ({**SSL, "ssl.keystore.key": "k"}, "has no certificate"),
        ({**WITH_KEY, "ssl.keystore.key": "k"}, "keep one of the two ways"),
        ({**WITH_KEY, "ssl.client.auth": "required"}, "ssl.client.auth=required: name the authorities"),
        (
            {**WITH_KEY, "ssl.truststore.location": "a", "ssl.truststore.certificates": "b"},
            "ssl.truststore.location: .* keep one of the two",
        ),
        ({**WITH_KEY, "ssl.keystore.type": "JKS"}, r"keytool -importkeystore .*openssl pkcs12 -in "),
        ({**WITH_KEY, "ssl.keystore.type": "PKCS12"}, r"openssl pkcs12 -in keystore.p12 -nodes -out"),
        ({**WITH_KEY, "ssl.truststore.type": "PKCS12"}, r"openssl pkcs12 -in truststore.p12 -nokeys -out"),
        ({**WITH_KEY, "ssl.enabled.protocols": "TLSv1.1"}, "must be one of: TLSv1.2, TLSv1.3"),
        ({**WITH_KEY, "ssl.enabled.protocols": ""}, "name at least one"),
        ({**WITH_KEY, "ssl.client.auth": "maybe"}, "must be one of: none, requested, required"),
        ({**WITH_KEY, "ssl.principal.mapping.rules": "RULE:CN=("}, "is not a rule"),
        ({**WITH_KEY, "ssl.principal.mapping.rules": "RULE:CN=(/$1/"}, "not a regular expression"),
        ({**WITH_KEY, "ssl.endpoint.identification.algorithm": "ldaps"}, "must be one of: https, "),
        (
            {**WITH_KEY, "listener.name.other.ssl.client.auth": "none"},
            "listener.name.other.ssl.client.auth: OTHER is not one of the listeners SSL",
        ),
        ({**WITH_KEY, "listener.name.ssl.num.partitions": "1"}, "a listener may have its own"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_advice(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _load(settings)


def test_other_machines_reach_a_tls_listener_only_with_certificates_or_consent() -> None:
    settings = {**OPEN, "ssl.keystore.location": "node.pem", "ssl.truststore.location": "ca.pem"}
    for client_auth in ("none", "requested"):
        with pytest.raises(ConfigError, match=r"Set ssl.client.auth=required, bind it .*--allow-anonymous"):
            _load({**settings, "ssl.client.auth": client_auth})
    _load({**settings, "ssl.client.auth": "required"})
    _load({**settings, "listeners.allow.anonymous": "true"})


def test_other_machines_reach_a_listener_that_asks_for_a_login() -> None:
    _load(
        {"listeners": "SASL_PLAINTEXT://0.0.0.0:9092", "advertised.listeners": "SASL_PLAINTEXT://kafka:9092"}
    )


def test_secrets_are_not_shown_when_two_places_contradict_each_other(tmp_path: Path) -> None:
    variables = {"KAFKA_SSL_KEY_PASSWORD": "hunter2", "KAFKA_CFG_SSL_KEY_PASSWORD": "hunter3"}
    with pytest.raises(ConfigError, match=r"says \*\*\*, but \w+ says \*\*\*; keep one") as caught:
        _load({}, variables)
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        ("DEFAULT", ALICE, ALICE),
        ("", ALICE, ALICE),
        (r"RULE:^CN=(.*?),OU=sales.*$/$1/", ALICE, "alice"),
        (r"RULE:^CN=(.*?),OU=sales.*$/$1@sales/U", ALICE, "ALICE@SALES"),
        (r"RULE:^CN=(.*?),OU=(.*?),.*$/$2-$1/L,DEFAULT", "CN=Bob,OU=Ops,C=DE", "ops-bob"),
        (r"RULE:^CN=(.*?),OU=ops.*$/$1/, RULE:^CN=(.*?),.*$/other-$1/, DEFAULT", ALICE, "other-alice"),
        (r"RULE:CN=bob/x/,DEFAULT", ALICE, ALICE),
        (r"RULE:CN=(.*?)/$1/", "CN=alice", "alice"),
        (r"RULE:^CN=(.*?),.*$/\$1 $1 $5/", ALICE, "$1 alice $5"),
        (r"RULE:^CN=(.*?)\/(.*)$/$1\/$2/", "CN=a/b", "a/b"),
        ("RULE:CN=a/b/\nDEFAULT", "CN=a", "b"),
        (r"RULE:CN=bob/x/", ALICE, None),
    ],
)
def test_mapping_rules_are_applied_as_in_kafka(rules: str, name: str, expected: Any) -> None:
    assert map_name(parse_rules(rules), name) == expected
