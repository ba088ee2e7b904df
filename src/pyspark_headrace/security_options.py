"""TLS and SASL as options say it: names of Java's clients and of librdkafka, after `kafka.` or without it.

Kept as text, since settings travel to Spark's workers and an SSLContext cannot. Knows no connection.
Read next: connections.py, which opens with it; security.py and sasl.py of the client.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError
from pyspark_headrace.option_values import Given

if TYPE_CHECKING:  # planning a query loads neither the client nor OpenSSL
    import ssl

    from headrace.client.sasl import Mechanism
    from headrace.client.security import Security

NAMES = (
    *("security.protocol", "sasl.mechanism", "sasl.username", "sasl.password", "sasl.jaas.config"),
    *("ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem"),
    *("ssl.key.location", "ssl.key.pem", "ssl.key.password", "ssl.endpoint.identification.algorithm"),
)
_ALIASES = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.location": "ssl.certificate.location",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_STORE_TYPES = ("ssl.truststore.type", "ssl.keystore.type")
_STORE_PASSWORDS = frozenset({"ssl.truststore.password", "ssl.keystore.password"})
"""Of Java's key stores; a PEM file has none."""
_KIND = re.compile(r"(?:kafka\.)?((?:security|sasl|ssl)\..*)", flags=re.IGNORECASE)
_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_JAAS_VALUE = re.compile(r"""\b(username|password)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityOptions:
    """Files have to be there on the driver and on every worker; what is given as text travels along."""

    tls: bool = False
    authorities_file: str | None = None
    authorities: str | None = None
    certificate_file: str | None = None
    certificate: str | None = None
    key_file: str | None = None
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    checks_host: bool = True
    mechanism: str | None = None
    user: str = ""
    password: str = field(default="", repr=False)

    def security(self) -> Security:
        """ClientError names the file that is missing or holds something else."""
        from headrace.client.security import Security

        return Security(tls=self._context() if self.tls else False, sasl=self._sasl())

    def _sasl(self) -> Mechanism | None:
        from headrace.client.sasl import Plain, ScramSha256, ScramSha512

        kinds: tuple[type[Plain] | type[ScramSha256] | type[ScramSha512], ...]
        kinds = (Plain, ScramSha256, ScramSha512)
        return next((kind(self.user, self.password) for kind in kinds if kind.name == self.mechanism), None)

    def _context(self) -> ssl.SSLContext:
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.authorities_file, cadata=self.authorities)
        except (OSError, ValueError) as error:
            raise _unusable("the authorities' certificates", self.authorities_file, error) from error
        context.check_hostname = self.checks_host
        try:
            self._show_certificate(context)
        except (OSError, ValueError) as error:
            raise _unusable("the client's certificate and key", self.certificate_file, error) from error
        return context

    def _show_certificate(self, context: ssl.SSLContext) -> None:
        if self.certificate_file is not None:
            context.load_cert_chain(self.certificate_file, self.key_file, self._password_of_key)
        elif self.certificate is not None:
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as both:  # OpenSSL takes only files
                both.write(f"{self.key or ''}\n{self.certificate}\n")
                both.flush()
                context.load_cert_chain(both.name, password=self._password_of_key)

    def _password_of_key(self) -> str:
        """Only asked for where the key has one; OpenSSL would wait at the terminal otherwise."""
        if self.key_password is None:
            raise ValueError("the key has a password, and option 'kafka.ssl.key.password' is not given")
        return self.key_password


NO_SECURITY = SecurityOptions()


def security_of(options: Mapping[str, str]) -> tuple[SecurityOptions, dict[str, str]]:
    """(what the options say of it, the others). What is not understood is refused: nothing is left out."""
    ours: dict[str, str] = {}
    others: dict[str, str] = {}
    for name, value in options.items():
        match = _KIND.fullmatch(name)
        if match is None:
            others[name] = value
        elif match[1].lower() in _STORE_TYPES:
            _check_store_type(name, value)
        elif match[1].lower() not in _STORE_PASSWORDS:
            ours[match[1].lower()] = value
    return (_settings(Given(ours, names=NAMES, aliases=_ALIASES)) if ours else NO_SECURITY), others


def _settings(given: Given) -> SecurityOptions:
    protocol = given.choice("security.protocol", _PROTOCOLS, "plaintext")
    _check_protocol(given, protocol)
    for location in ("ssl.ca.location", "ssl.certificate.location"):
        _check_store_name(given, location)
    user, password = _login(given)
    return SecurityOptions(
        tls=protocol.endswith("ssl"),
        authorities_file=given.text("ssl.ca.location"),
        authorities=given.text("ssl.ca.pem"),
        certificate_file=given.text("ssl.certificate.location"),
        certificate=given.text("ssl.certificate.pem"),
        key_file=given.text("ssl.key.location"),
        key=given.text("ssl.key.pem"),
        key_password=given.text("ssl.key.password"),
        checks_host=given.text("ssl.endpoint.identification.algorithm", "https") not in ("", "none"),
        mechanism=_mechanism(given) if protocol.startswith("sasl") else None,
        user=user,
        password=password,
    )


def _check_protocol(given: Given, protocol: str) -> None:
    """Settings of TLS or SASL without the protocol that uses them: Java's clients go on in the open."""
    for kind, fitting in (("sasl", "SASL_SSL or SASL_PLAINTEXT"), ("ssl", "SSL or SASL_SSL")):
        named = [name for name in NAMES if name.startswith(f"{kind}.") and name in given]
        if named and kind not in protocol.split("_"):
            raise ClientError(
                f"option 'kafka.{named[0]}' has no effect with security.protocol {protocol.upper()}",
                next_step=f'set .option("kafka.security.protocol", …) to {fitting}',
            )


def _mechanism(given: Given) -> str:
    name = (given.text("sasl.mechanism") or "").upper()
    if name not in _MECHANISMS:
        raise ClientError(
            f"SASL mechanism {name!r} is not spoken here" if name else "no SASL mechanism is given",
            next_step=f'set .option("kafka.sasl.mechanism", …) to {", ".join(_MECHANISMS)}',
        )
    return name


def _login(given: Given) -> tuple[str, str]:
    jaas = given.text("sasl.jaas.config")
    if jaas is None:
        user, password = given.text("sasl.username"), given.text("sasl.password")
    else:
        found = {name: re.sub(r"\\(.)", r"\1", quoted[1:-1]) for name, quoted in _JAAS_VALUE.findall(jaas)}
        user, password = found.get("username"), found.get("password")
    if "sasl.mechanism" in given and (user is None or password is None):
        raise ClientError(
            "user or password is missing for SASL",
            next_step="give kafka.sasl.username and kafka.sasl.password, or both in kafka.sasl.jaas.config",
        )
    return user or "", password or ""


def _check_store_type(name: str, value: str) -> None:
    if value.strip().upper() != "PEM":
        raise _not_pem(f"option {name!r}: stores of type {value.strip()} are Java's")


def _check_store_name(given: Given, location: str) -> None:
    path = given.text(location) or ""
    if path.lower().endswith((".jks", ".p12", ".pfx")):
        raise _not_pem(f"{path!r} is one of Java's key stores")


def _not_pem(what: str) -> ClientError:
    return ClientError(
        what,
        next_step="export it as PEM: keytool -list -rfc -keystore STORE > ca.pem for authorities, "
        "openssl pkcs12 -in STORE.p12 -nodes -out client.pem for a certificate and its key",
    )


def _unusable(what: str, path: str | None, error: Exception) -> ClientError:
    where = "options" if path is None else repr(path)
    return ClientError(
        f"{what} in {where} cannot be used: {getattr(error, 'strerror', None) or error}",
        next_step="the driver and every worker need the file, in PEM; "
        "or give its text: kafka.ssl.truststore.certificates, kafka.ssl.keystore.certificate.chain and .key",
    )
