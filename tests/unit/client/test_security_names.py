# SPDX-License-Identifier: Apache-2.0
"""TLS and SASL settings in both dialects: what they become, what is refused, and that no secret is shown."""

from __future__ import annotations

import pytest

from headrace.client.errors import ClientError
from headrace.client.oauth_tokens import ClientCredentials, TokenFile
from headrace.client.security_names import is_secret_name, is_security_name, read_security
from headrace.client.security_settings import NO_SECURITY, PasswordLogin, TlsSettings, TokenLogin
from headrace.secret import Secret

MODULES = "org.apache.kafka.common.security"
OAUTH_MODULE = f"{MODULES}.oauthbearer.OAuthBearerLoginModule"
PLAIN = f'{MODULES}.plain.PlainLoginModule required username="a" password="s3cret";'
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
TOKENS = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
ENDPOINT = {"sasl.oauthbearer.token.endpoint.url": "https://id.example.com/token"}


def test_settings_of_other_kinds_are_left_alone():
    assert read_security({"acks": "all", "group.id": "g", "client.id": "c"}) == NO_SECURITY
    assert read_security({"security.protocol": "plaintext"}) == NO_SECURITY


def test_the_same_login_in_both_dialects():
    java = {
        **SASL,
        "sasl.jaas.config": f'{MODULES}.scram.ScramLoginModule required username="ann" password="p\\"w";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.password": "unused",
        "sasl.login.refresh.window.factor": "0.8",
    }
    librdkafka = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "scram-sha-512",
        "sasl.username": "ann",
        "sasl.password": 'p"w',
        "ssl.ca.location": "/ca.pem",
    }
    found = read_security(java)
    assert found == read_security(librdkafka)
    assert found.login == PasswordLogin(mechanism="SCRAM-SHA-512", user="ann", password=Secret('p"w'))
    assert found.tls == TlsSettings(authorities_file="/ca.pem")
    assert found.protocol == "SASL_SSL"


def test_the_same_certificate_in_both_dialects():
    java = {
        "security.protocol": "SSL",
        "ssl.keystore.type": "pem",
        "ssl.keystore.certificate.chain": "CERT",
        "ssl.keystore.key": "KEY",
        "ssl.key.password": "pw",
        "ssl.truststore.certificates": "CA",
        "ssl.endpoint.identification.algorithm": "",
        "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
        "ssl.protocol": "TLSv1.3",
    }
    librdkafka = {
        "security.protocol": "ssl",
        "ssl.certificate.pem": "CERT",
        "ssl.key.pem": "KEY",
        "ssl.key.password": "pw",
        "ssl.ca.pem": "CA",
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert read_security(java) == read_security(librdkafka)
    tls = read_security(java).tls
    assert tls is not None
    assert (tls.certificate, tls.key, tls.key_password) == ("CERT", Secret("KEY"), Secret("pw"))
    assert not tls.checks_host


def test_verification_can_be_switched_off_by_name_only():
    off = read_security({"security.protocol": "ssl", "enable.ssl.certificate.verification": "false"})
    assert off.tls is not None
    assert not off.tls.checks_certificate
    assert off.tls.context().verify_mode == 0


def test_client_credentials_in_both_dialects_and_in_the_older_jaas_options():
    handler = f"{MODULES}.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
    dialects = [
        {
            "sasl.oauthbearer.client.credentials.client.id": "app",
            "sasl.oauthbearer.client.credentials.client.secret": "s3cret",
            "sasl.oauthbearer.scope": "kafka",
            "sasl.jaas.config": f'{OAUTH_MODULE} required extension_cluster="c1";',
            "sasl.oauthbearer.jwt.retriever.class": f"{MODULES}.oauthbearer.ClientCredentialsJwtRetriever",
        },
        {
            "sasl.login.callback.handler.class": handler,
            "sasl.jaas.config": f"{OAUTH_MODULE} required clientId='app' "
            "clientSecret='s3cret' scope=kafka extension_cluster=c1;",
        },
        {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "app",
            "sasl.oauthbearer.client.secret": "s3cret",
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.extensions": "cluster=c1",
        },
    ]
    source = ClientCredentials(
        endpoint="https://id.example.com/token",
        client_id="app",
        client_secret=Secret("s3cret"),
        scope="kafka",
    )
    expected = TokenLogin(source=source, extensions=(("cluster", "c1"),))
    for dialect in dialects:
        assert read_security({**TOKENS, **ENDPOINT, **dialect}).login == expected


def test_a_token_from_a_file():
    found = read_security({**TOKENS, "sasl.oauthbearer.token.endpoint.url": "file:///run/a%20token"})
    assert found.login == TokenLogin(source=TokenFile(path="/run/a token"))


REFUSED = {
    "no protocol": (
        {"sasl.mechanism": "PLAIN"},
        "sasl.mechanism has no effect with security.protocol PLAINTEXT",
    ),
    "tls without it": (
        {"security.protocol": "SASL_PLAINTEXT", "ssl.truststore.location": "ca.pem"},
        "ssl.truststore.location has no effect .* set security.protocol to SSL or SASL_SSL",
    ),
    "unknown protocol": (
        {"security.protocol": "TLS"},
        "security.protocol cannot be 'TLS'; use one of PLAINTEXT",
    ),
    "no mechanism": ({"security.protocol": "SASL_SSL"}, "no SASL mechanism is set"),
    "kerberos": (
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka"},
        "SASL mechanism 'GSSAPI' is not supported; set sasl.mechanism to PLAIN",
    ),
    "no password": ({**SASL, "sasl.username": "ann"}, "SCRAM-SHA-512 needs a user and a password"),
    "another module": (
        {**SASL, "sasl.jaas.config": PLAIN},
        "names PlainLoginModule, which does not fit SCRAM-SHA-512",
    ),
    "no jaas": (
        {**SASL, "sasl.jaas.config": "password=s3cret"},
        "sasl.jaas.config cannot be read; write: org",
    ),
    "a typing error": ({"security.protocol": "SSL", "ssl.ca.locaton": "x"}, "did you mean 'ssl.ca.location'"),
    "something new": (
        {"sasl.quantum.entangle": "x"},
        "there is no setting sasl.quantum.entangle; docs/security",
    ),
    "twice": (
        {"security.protocol": "SSL", "ssl.ca.location": "a", "ssl.truststore.location": "b"},
        "ssl.ca.location and ssl.truststore.location say the same thing",
    ),
    "jks": (
        {"security.protocol": "SSL", "ssl.truststore.type": "JKS"},
        "type JKS .*keytool -exportcert -rfc",
    ),
    "p12": ({"security.protocol": "SSL", "ssl.keystore.location": "/c.p12"}, "/c.p12' .*openssl pkcs12 -in"),
    "two keys": (
        {
            "security.protocol": "SSL",
            "ssl.certificate.pem": "C",
            "ssl.key.pem": "s3cret",
            "ssl.key.location": "k",
        },
        "ssl.key.pem and ssl.key.location both give the key",
    ),
    "a key alone": ({"security.protocol": "SSL", "ssl.key.location": "k"}, "and there is no certificate"),
    "a host check": (
        {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldaps"},
        "cannot be 'ldaps'; use https, or none",
    ),
    "old tls": (
        {"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.1"},
        "TLS 1.2 and 1.3 are offered",
    ),
    "only tls 1.3": ({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.3"}, "TLS 1.2 and 1.3"),
    "no boolean": (
        {"security.protocol": "SSL", "enable.ssl.certificate.verification": "maybe"},
        "cannot be 'maybe'; use one of TRUE, FALSE",
    ),
    "no source of tokens": (TOKENS, "OAUTHBEARER needs a source of tokens"),
    "no secret": ({**TOKENS, **ENDPOINT}, "needs the client's id and secret"),
    "no https": (
        {
            **TOKENS,
            "sasl.oauthbearer.token.endpoint.url": "http://u:s3cret@id.example.com/token",
            "sasl.oauthbearer.client.id": "a",
            "sasl.oauthbearer.client.secret": "s3cret",
        },
        "'http://id.example.com/token' is not an https URL",
    ),
    "a remote file": (
        {**TOKENS, "sasl.oauthbearer.token.endpoint.url": "file://host/token"},
        "is not the URL of a local file",
    ),
    "a class of java": (
        {**TOKENS, **ENDPOINT, "sasl.login.callback.handler.class": "software.amazon.msk.IAMHandler"},
        "classes of Java cannot run here; use OAuthBearerLoginCallbackHandler",
    ),
    "unsecured tokens": ({**TOKENS, **ENDPOINT, "sasl.oauthbearer.method": "default"}, "unsecured tokens"),
    "extensions": (
        {**TOKENS, **ENDPOINT, "sasl.oauthbearer.extensions": "x"},
        "sasl.oauthbearer.extensions cannot be read; write name=value",
    ),
    "a timeout": (
        {
            **TOKENS,
            **ENDPOINT,
            "sasl.oauthbearer.client.id": "a",
            "sasl.oauthbearer.client.secret": "s3cret",
            "sasl.login.connect.timeout.ms": "soon",
        },
        "cannot be 'soon'; write a number of milliseconds",
    ),
}


@pytest.mark.parametrize(("settings", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_meant_is_refused_without_showing_a_secret(settings, said):
    with pytest.raises(ClientError, match=said) as caught:
        read_security(settings)
    assert "s3cret" not in str(caught.value)


def test_errors_say_where_and_use_the_names_as_written():
    with pytest.raises(ClientError, match=r"^client.properties: kafka\.sasl\.mechanism has no effect"):
        read_security({"sasl.mechanism": "PLAIN"}, where="client.properties: ", prefix="kafka.")


def test_which_names_are_secrets():
    assert is_secret_name("kafka.sasl.jaas.config")
    assert is_secret_name("ssl.key.password")
    assert not is_secret_name("sasl.username")
    assert is_security_name("enable.ssl.certificate.verification")
    assert not is_security_name("acks")
