# SPDX-License-Identifier: Apache-2.0
"""TLS and SASL as plain values: what a file, options or the environment say, for every kind of client.

Made by security_names.py. Becomes a `Security` for our connections, and librdkafka's settings for
confluent-kafka. Values only, because settings are pickled to Spark's workers and an SSLContext cannot be.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.client.errors import ClientError
from headrace.client.oauth_tokens import TokenSource, cached_tokens
from headrace.secret import Secret

if TYPE_CHECKING:  # planning a query in Spark loads neither the client nor OpenSSL
    import ssl

    from headrace.client.sasl import Mechanism
    from headrace.client.security import Security


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """All in PEM, by path or as text. Without authorities those of the system are trusted."""

    authorities_file: str | None = None
    authorities: str | None = None
    certificate_file: str | None = None
    certificate: str | None = None
    key_file: str | None = None
    """None: the key is in the certificate's file."""
    key: Secret | None = None
    key_password: Secret | None = None
    checks_certificate: bool = True
    checks_host: bool = True

    def context(self) -> ssl.SSLContext:
        """ClientError names a missing or unusable file."""
        import ssl

        from headrace.client.tls_context import trusting_context

        context = trusting_context(self.authorities_file, self.authorities)
        context.check_hostname = self.checks_host and self.checks_certificate
        if not self.checks_certificate:
            context.verify_mode = ssl.CERT_NONE
        self._load_certificate(context)
        return context

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        from headrace.client.tls_context import load_certificate, load_certificate_text

        if self.certificate_file is not None and self.key is None:
            load_certificate(context, self.certificate_file, self.key_file, self._password_of_key)
            return
        certificate = self.certificate or _text(self.certificate_file)
        if certificate is not None:
            key = self.key.reveal() if self.key is not None else _text(self.key_file) or ""
            load_certificate_text(context, certificate, key, self._password_of_key)

    def _password_of_key(self) -> str:
        """Called only for an encrypted key; otherwise OpenSSL would prompt on the terminal."""
        if self.key_password is None:
            raise ValueError("the key has a password, and ssl.key.password is not set")
        return self.key_password.reveal()

    def librdkafka(self) -> dict[str, Any]:
        key_file = self.key_file or (self.certificate_file if self.key is None else None)
        given = {
            "ssl.ca.location": self.authorities_file,
            "ssl.ca.pem": self.authorities,
            "ssl.certificate.location": self.certificate_file,
            "ssl.certificate.pem": self.certificate,
            "ssl.key.location": key_file,
            "ssl.key.pem": self.key and self.key.reveal(),
            "ssl.key.password": self.key_password and self.key_password.reveal(),
            "ssl.endpoint.identification.algorithm": "https" if self.checks_host else "none",
            "enable.ssl.certificate.verification": self.checks_certificate,
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordLogin:
    """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""

    mechanism: str
    user: str
    password: Secret

    def sasl(self) -> Mechanism:
        from headrace.client.sasl import Plain, ScramSha256, ScramSha512

        kinds: tuple[type[Plain] | type[ScramSha256] | type[ScramSha512], ...]
        kinds = (Plain, ScramSha256, ScramSha512)
        chosen = next(kind for kind in kinds if kind.name == self.mechanism)
        return chosen(self.user, self.password.reveal())

    def librdkafka(self) -> dict[str, Any]:
        return {
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.user,
            "sasl.password": self.password.reveal(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogin:
    """OAUTHBEARER."""

    source: TokenSource
    extensions: tuple[tuple[str, str], ...] = ()

    def sasl(self) -> Mechanism:
        from headrace.client.sasl import OAuthBearer

        return OAuthBearer(self._token, dict(self.extensions))

    def _token(self) -> str:
        return cached_tokens(self.source).token().value.reveal()

    def librdkafka(self) -> dict[str, Any]:
        """A callback, not librdkafka's own token requests: the same checks and the same cache as ours."""
        cache = cached_tokens(self.source)

        def token(_: str) -> tuple[str, float, str, dict[str, str]]:
            found = cache.token()
            return found.value.reveal(), found.expires_s, "", dict(self.extensions)

        return {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": token}


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """None, None: PLAINTEXT."""

    tls: TlsSettings | None = None
    login: PasswordLogin | TokenLogin | None = None

    @property
    def protocol(self) -> str:
        """As in security.protocol."""
        inner = "PLAINTEXT" if self.tls is None else "SSL"
        return inner if self.login is None else f"SASL_{inner}"

    def security(self) -> Security:
        """For our own connections; ClientError names a missing or unusable file."""
        from headrace.client.security import Security

        return Security(
            tls=False if self.tls is None else self.tls.context(),
            sasl=None if self.login is None else self.login.sasl(),
        )

    def librdkafka(self) -> dict[str, Any]:
        """Settings for confluent-kafka. They hold passwords: never print them."""
        if self == NO_SECURITY:
            return {}
        tls = {} if self.tls is None else self.tls.librdkafka()
        login = {} if self.login is None else self.login.librdkafka()
        return {"security.protocol": self.protocol.lower(), **tls, **login}


NO_SECURITY = SecuritySettings()


def _text(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(
            f"{path!r} cannot be read: {getattr(error, 'strerror', None) or 'it is not PEM'}",
            next_step="check its name, and that this user may read it",
        ) from None
