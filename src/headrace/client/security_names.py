# SPDX-License-Identifier: Apache-2.0
"""Reads TLS and SASL settings under the names of Kafka's Java client and of librdkafka.

The only reader of these names: files, options of Spark and of tools all come here. No value is shown in an
error unless it is known to be no secret. Read next: security_settings.py, oauth_tokens.py.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from headrace.client.errors import ClientError
from headrace.client.oauth_tokens import ClientCredentials, TokenFile
from headrace.client.security_settings import (
    NO_SECURITY,
    PasswordLogin,
    SecuritySettings,
    TlsSettings,
    TokenLogin,
)
from headrace.secret import Secret

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

SECRETS = frozenset(
    {
        *("sasl.password", "sasl.jaas.config", "ssl.key.password", "ssl.key.pem", "ssl.keystore.key"),
        *("ssl.truststore.password", "ssl.keystore.password", "sasl.oauthbearer.client.secret"),
        "sasl.oauthbearer.client.credentials.client.secret",
    }
)
"""Names whose values must not be in arguments and output (S8, S18)."""

_OAUTH = "sasl.oauthbearer"
_NAMES = (
    *("security.protocol", "sasl.mechanism", "sasl.username", "sasl.password", "sasl.jaas.config"),
    *("ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem"),
    *("ssl.key.location", "ssl.key.pem", "ssl.key.password", "ssl.endpoint.identification.algorithm"),
    *("ssl.truststore.type", "ssl.keystore.type", "ssl.protocol", "ssl.enabled.protocols"),
    *("enable.ssl.certificate.verification", "https.ca.location", "https.ca.pem"),
    *("sasl.login.callback.handler.class", "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms"),
    *(f"{_OAUTH}.method", f"{_OAUTH}.token.endpoint.url", f"{_OAUTH}.client.id", f"{_OAUTH}.client.secret"),
    *(f"{_OAUTH}.scope", f"{_OAUTH}.extensions", f"{_OAUTH}.header.urlencode"),
    f"{_OAUTH}.jwt.retriever.class",
)
_ALIASES = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.location": "ssl.certificate.location",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    f"{_OAUTH}.client.credentials.client.id": f"{_OAUTH}.client.id",
    f"{_OAUTH}.client.credentials.client.secret": f"{_OAUTH}.client.secret",
}
SECURITY_NAMES = (*_NAMES, *_ALIASES)
_WITHOUT_EFFECT = re.compile(
    r"ssl\.(truststore|keystore)\.password"  # Java key stores need them; PEM files do not
    r"|ssl\.(keymanager|trustmanager)\.algorithm|ssl\.provider|ssl\.secure\.random\.implementation"
    r"|sasl\.login\.(refresh\..*|retry\..*)|sasl\.kerberos\..*|security\.providers"
)
_KIND = re.compile(r"(?:security|sasl|ssl|https)\..*|enable\.ssl\.certificate\.verification")

_HANDLERS = ("OAuthBearerLoginCallbackHandler",)
_RETRIEVERS = ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")
_MODULES = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}
_JAAS = re.compile(r"""\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*?);?\s*""", re.DOTALL)
_JAAS_OPTION = re.compile(r"""([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)""")


def is_security_name(name: str) -> bool:
    return _KIND.fullmatch(name.lower()) is not None


def canonical_name(name: str) -> str:
    """One name for each meaning: librdkafka's `ssl.ca.location` for Java's `ssl.truststore.location`."""
    return _ALIASES.get(name.lower(), name.lower())


def is_secret_name(name: str) -> bool:
    """Of a setting whose value must not be shown; with or without the prefix `kafka.`."""
    return name.lower().removeprefix("kafka.") in SECRETS


def read_security(settings: Mapping[str, str], *, where: str = "", prefix: str = "") -> SecuritySettings:
    """The security of a client by its settings; others than those of security are left alone.

    `where` comes before an error (a file's name and a colon), `prefix` before names in it (`kafka.`). Unknown
    names of the families security, sasl, ssl and https raise: a setting that does nothing may be the one that
    was to protect.
    """
    values = _Values(settings, where=where, prefix=prefix)
    if not values:
        return NO_SECURITY
    protocol = values.choice("security.protocol", _PROTOCOLS, "PLAINTEXT")
    _check_effect(values, protocol)
    return SecuritySettings(
        tls=_tls(values) if protocol.endswith("SSL") else None,
        login=_login(values) if protocol.startswith("SASL") else None,
    )


class _Given(NamedTuple):
    written: str
    value: str


class _Values:
    """Settings by one name for each meaning; errors show a name as it was written."""

    def __init__(self, settings: Mapping[str, str], *, where: str, prefix: str) -> None:
        self._where, self._prefix = where, prefix
        self._given: dict[str, _Given] = {}
        for written, value in settings.items():
            name = written.lower()
            if not is_security_name(name) or _WITHOUT_EFFECT.fullmatch(name):
                continue
            name = _ALIASES.get(name, name)
            if name not in _NAMES:
                raise self._unknown(written)
            if name in self._given:
                both = f"{self.shown(name)} and {self._prefix}{written}"
                raise self.error(f"{both} say the same thing", "leave one of them out")
            self._given[name] = _Given(written, value.strip())

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def __len__(self) -> int:
        return len(self._given)

    def text(self, name: str) -> str | None:
        return self._given[name].value if name in self._given else None

    def secret(self, name: str) -> Secret | None:
        return Secret(self._given[name].value) if name in self._given else None

    def choice(self, name: str, choices: tuple[str, ...], default: str, hint: str | None = None) -> str:
        text = self.text(name)
        found = (default if text is None else text).upper()
        if found not in choices:
            named = hint or f"one of {', '.join(choices)}"
            raise self.error(f"{self.shown(name)} cannot be {text!r}", f"use {named}")
        return found

    def boolean(self, name: str, default: bool) -> bool:
        return self.choice(name, ("TRUE", "FALSE"), str(default).upper()) == "TRUE"

    def milliseconds(self, name: str, default: int) -> int:
        text = self.text(name) or str(default)
        if not text.isdecimal() or int(text) == 0:
            raise self.error(f"{self.shown(name)} cannot be {text!r}", "write a number of milliseconds")
        return int(text)

    def shown(self, name: str) -> str:
        return f"{self._prefix}{self._given[name].written if name in self._given else name}"

    def error(self, what: str, next_step: str) -> ClientError:
        return ClientError(f"{self._where}{what}", next_step=next_step)

    def _unknown(self, written: str) -> ClientError:
        close = difflib.get_close_matches(written.lower(), SECURITY_NAMES, n=1)
        return self.error(
            f"there is no setting {self._prefix}{written}",
            f"did you mean {close[0]!r}?" if close else "docs/security.md lists the settings",
        )


def _check_effect(values: _Values, protocol: str) -> None:
    """Refuse TLS or SASL settings without the matching protocol: Java clients connect unencrypted then."""
    fitting = {"sasl": "SASL_SSL or SASL_PLAINTEXT", "ssl": "SSL or SASL_SSL"}
    for name in values:
        kind = "ssl" if name == "enable.ssl.certificate.verification" else name.partition(".")[0]
        if kind in fitting and kind.upper() not in protocol.split("_"):
            raise values.error(
                f"{values.shown(name)} has no effect with security.protocol {protocol}",
                f"set {values.shown('security.protocol')} to {fitting[kind]}, or remove it",
            )


def _tls(values: _Values) -> TlsSettings:
    _check_tls_versions(values)
    for store in ("ssl.truststore.type", "ssl.keystore.type"):
        _check_store_type(values, store)
    for location in ("ssl.ca.location", "ssl.certificate.location"):
        _check_store_name(values, location)
    _check_key(values)
    return TlsSettings(
        authorities_file=values.text("ssl.ca.location"),
        authorities=values.text("ssl.ca.pem"),
        certificate_file=values.text("ssl.certificate.location"),
        certificate=values.text("ssl.certificate.pem"),
        key_file=values.text("ssl.key.location"),
        key=values.secret("ssl.key.pem"),
        key_password=values.secret("ssl.key.password"),
        checks_certificate=values.boolean("enable.ssl.certificate.verification", True),
        checks_host=_checks_host(values),
    )


def _check_key(values: _Values) -> None:
    keys = [name for name in ("ssl.key.pem", "ssl.key.location") if name in values]
    if len(keys) == 2:
        both = " and ".join(map(values.shown, keys))
        raise values.error(f"{both} both give the key", "leave one of them out")
    if keys and "ssl.certificate.pem" not in values and "ssl.certificate.location" not in values:
        raise values.error(
            f"{values.shown(keys[0])} gives a key, and there is no certificate",
            f"set {values.shown('ssl.certificate.location')}",
        )


def _checks_host(values: _Values) -> bool:
    name = "ssl.endpoint.identification.algorithm"
    return values.choice(name, ("HTTPS", "NONE", ""), "HTTPS", "https, or none to check no names") == "HTTPS"


def _check_tls_versions(values: _Values) -> None:
    """TLS 1.2 and 1.3 are always offered, and no older ones."""
    for name in ("ssl.protocol", "ssl.enabled.protocols"):
        asked = {part.strip() for part in (values.text(name) or "TLSv1.2").split(",")}
        if not asked & {"TLS", "TLSv1.2"} and not (name == "ssl.protocol" and asked == {"TLSv1.3"}):
            raise values.error(
                f"{values.shown(name)} cannot be {values.text(name)!r}: TLS 1.2 and 1.3 are offered",
                "remove it, and let the broker's listener choose",
            )


def _login(values: _Values) -> PasswordLogin | TokenLogin:
    mechanism = (values.text("sasl.mechanism") or "").upper()
    if mechanism not in MECHANISMS:
        raise values.error(
            f"SASL mechanism {mechanism!r} is not supported" if mechanism else "no SASL mechanism is set",
            f"set {values.shown('sasl.mechanism')} to {', '.join(MECHANISMS)}",
        )
    jaas = _jaas_options(values, mechanism)
    return _token_login(values, jaas) if mechanism == "OAUTHBEARER" else _password(values, jaas, mechanism)


def _password(values: _Values, jaas: Mapping[str, str], mechanism: str) -> PasswordLogin:
    user = jaas.get("username", values.text("sasl.username"))
    password = jaas.get("password", values.text("sasl.password"))
    if user is None or password is None:
        raise values.error(
            f"{mechanism} needs a user and a password",
            f"set {values.shown('sasl.username')} and {values.shown('sasl.password')}, "
            f"or both in {values.shown('sasl.jaas.config')}",
        )
    return PasswordLogin(mechanism=mechanism, user=user, password=Secret(password))


def _jaas_options(values: _Values, mechanism: str) -> dict[str, str]:
    """The options in sasl.jaas.config, which is never shown: it holds the password."""
    text = values.text("sasl.jaas.config")
    if text is None:
        return {}
    match = _JAAS.fullmatch(text)
    if match is None:
        raise values.error(
            f"{values.shown('sasl.jaas.config')} cannot be read",
            "write: org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="…" password="…";',
        )
    module = match[1].rpartition(".")[2]
    if mechanism not in _MODULES.get(module, ()):
        raise values.error(
            f"{values.shown('sasl.jaas.config')} names {module}, which does not fit {mechanism}",
            f"use one of {', '.join(_MODULES)} that fits {values.shown('sasl.mechanism')}",
        )
    return {name: _unquoted(value) for name, value in _JAAS_OPTION.findall(match[2])}


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[0] in "\"'" else text


def _token_login(values: _Values, jaas: Mapping[str, str]) -> TokenLogin:
    _check_java_class(values, "sasl.login.callback.handler.class", _HANDLERS)
    _check_java_class(values, f"{_OAUTH}.jwt.retriever.class", _RETRIEVERS)
    if values.choice(f"{_OAUTH}.method", ("OIDC", "DEFAULT"), "OIDC") == "DEFAULT":
        raise values.error("unsecured tokens are not supported", f"set {_OAUTH}.method to oidc")
    url = values.text(f"{_OAUTH}.token.endpoint.url")
    if url is None:
        raise values.error(
            "OAUTHBEARER needs a source of tokens",
            f"set {values.shown(f'{_OAUTH}.token.endpoint.url')} to https://HOST/PATH of an identity "
            "provider, or to file:///PATH of a token",
        )
    extensions = _extensions(values, jaas)
    if url.lower().startswith("file:"):
        return TokenLogin(source=TokenFile(path=_path_of(values, url)), extensions=extensions)
    return TokenLogin(source=_client_credentials(values, jaas, url), extensions=extensions)


def _client_credentials(values: _Values, jaas: Mapping[str, str], url: str) -> ClientCredentials:
    client_id = values.text(f"{_OAUTH}.client.id") or jaas.get("clientId")
    secret = values.text(f"{_OAUTH}.client.secret") or jaas.get("clientSecret")
    if client_id is None or secret is None:
        raise values.error(
            "OAUTHBEARER needs the client's id and secret",
            f"set {_OAUTH}.client.credentials.client.id and {_OAUTH}.client.credentials.client.secret",
        )
    connect_ms = values.milliseconds("sasl.login.connect.timeout.ms", 10_000)
    try:
        return ClientCredentials(
            endpoint=url,
            client_id=client_id,
            client_secret=Secret(secret),
            scope=values.text(f"{_OAUTH}.scope") or jaas.get("scope"),
            encodes_header=values.boolean(f"{_OAUTH}.header.urlencode", False),
            authorities_file=values.text("https.ca.location") or jaas.get("ssl.truststore.location"),
            authorities=values.text("https.ca.pem"),
            timeout_ms=max(connect_ms, values.milliseconds("sasl.login.read.timeout.ms", 10_000)),
        )
    except ClientError as error:
        raise values.error(error.what, error.next_step or "check it") from None


def _extensions(values: _Values, jaas: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """SASL extensions (KIP-342): `extension_NAME` of JAAS, or librdkafka's `name=value,…`."""
    found = {name.removeprefix("extension_"): jaas[name] for name in jaas if name.startswith("extension_")}
    for part in filter(None, (values.text(f"{_OAUTH}.extensions") or "").split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise values.error(f"{values.shown(f'{_OAUTH}.extensions')} cannot be read", "write name=value,…")
        found[name.strip()] = value.strip()
    return tuple(sorted(found.items()))


def _path_of(values: _Values, url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        name = values.shown(f"{_OAUTH}.token.endpoint.url")
        raise values.error(f"{name} is not the URL of a local file", "write file:///PATH")
    return unquote(parts.path)


def _check_java_class(values: _Values, name: str, known: tuple[str, ...]) -> None:
    written = values.text(name)
    if written and written.rpartition(".")[2] not in known:
        raise values.error(
            f"{values.shown(name)} cannot be {written!r}: classes of Java cannot run here",
            f"use {' or '.join(known)}, or a token in a file: {_OAUTH}.token.endpoint.url=file:///PATH",
        )


def _check_store_type(values: _Values, name: str) -> None:
    kind = values.text(name) or "PEM"
    if kind.upper() != "PEM":
        raise _not_pem(values, f"{values.shown(name)}: stores of type {kind} are not supported")


def _check_store_name(values: _Values, location: str) -> None:
    path = values.text(location) or ""
    if path.lower().endswith((".jks", ".p12", ".pfx", ".keystore", ".truststore")):
        raise _not_pem(values, f"{values.shown(location)}: {path!r} is a key store, not PEM")


def _not_pem(values: _Values, what: str) -> ClientError:
    from headrace.client.tls_context import not_pem

    return values.error(what, not_pem(what).next_step or "")
