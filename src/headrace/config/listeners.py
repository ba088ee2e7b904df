# SPDX-License-Identifier: Apache-2.0
"""Listeners of a node and the addresses they advertise.

Two spellings: Kafka's `NAME://host:port` lists in files and the environment, and the command line's
`name=host:port,advertise=host:port`. Nothing here opens a socket.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.errors import ArgumentError, ConfigError
from headrace.types import Endpoint

PLAINTEXT = "PLAINTEXT"
SECURITY_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_LISTENER = re.compile(r"(?P<name>[^:/]*)://(?P<address>.*)")
_ADDRESS = re.compile(r"(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^:\[\]]*)):(?P<port>\d{1,5})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HOST = re.compile(r"[A-Za-z0-9._-]*")
_EVERY_INTERFACE = ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """One listener. An empty `host` is every interface; port 0 is a free port, known after binding."""

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    security_protocol: str = PLAINTEXT

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def needs_login(self) -> bool:
        """Whether clients log in by SASL."""
        return self.security_protocol.startswith("SASL_")

    @property
    def tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    def endpoint(self, bound_port: int) -> Endpoint:
        """The advertised address of this listener, once its port is known."""
        return Endpoint(
            listener=self.name, host=self.advertised_host, port=self.advertised_port or bound_port
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


_DEFAULT_NAME = "PLAINTEXT"
"""Of a listener on the command line that is only an address."""


def parse_listener(text: str) -> ListenerConfig:
    """One listener in either spelling; the command line's carries its advertised address along."""
    if "://" in text:
        name, host, port = _split_listener(text)
        return _listener(text, name, (host, port), (host, port))
    head, *options = (part.strip() for part in text.split(","))
    name, equals, address = head.partition("=")
    if not equals:
        name, address = _DEFAULT_NAME, head
    bound = _split_address(text, address)
    advertised, protocol = _options(text, options)
    return _listener(text, _checked_name(text, name), bound, advertised or bound, protocol)


def listener_overrides(flags: Sequence[str]) -> dict[str, str]:
    """The settings that a series of `--listener` flags stands for."""
    if not flags:
        return {}
    try:
        listeners = [parse_listener(flag) for flag in flags]
    except ConfigError as error:
        raise ArgumentError(str(error)) from None
    return {
        "listeners": ",".join(f"{each.name}://{format_address(each.host, each.port)}" for each in listeners),
        "advertised.listeners": ",".join(
            f"{each.name}://{format_address(each.advertised_host, each.advertised_port)}"
            for each in listeners
        ),
        "listener.security.protocol.map": ",".join(
            f"{each.name}:{each.security_protocol}" for each in listeners
        ),
    }


def build_listeners(
    listeners: Iterable[str], advertised: Iterable[str] | None, protocols: Iterable[str]
) -> tuple[ListenerConfig, ...]:
    """The listeners of a node from the three settings. Each ConfigError begins with the key at fault."""
    protocol_of = _protocol_map(protocols)
    addresses = {} if advertised is None else _addresses("advertised.listeners", advertised)
    bound = _addresses("listeners", listeners)
    if not bound:
        raise ConfigError("listeners: name at least one, for example PLAINTEXT://127.0.0.1:9092")
    for name in addresses:
        if name not in bound:
            raise ConfigError(f"advertised.listeners: {name} is not one of the listeners {', '.join(bound)}")
    _check_distinct_ports(bound)
    return tuple(
        ListenerConfig(
            name=name,
            host=host,
            port=port,
            advertised_host=_advertised_host(
                "advertised.listeners" if name in addresses else "listeners",
                name,
                addresses.get(name, (host, port))[0],
            ),
            advertised_port=addresses.get(name, (host, port))[1],
            security_protocol=_served_protocol(name, protocol_of),
        )
        for name, (host, port) in bound.items()
    )


def check_anonymous(listeners: Iterable[ListenerConfig], *, allowed: bool) -> None:
    """Refuses listeners without login that other machines can reach, unless allowed.

    Those that require client certificates are not passed in.
    """
    for listener in listeners:
        if not (listener.loopback or listener.needs_login or allowed):
            raise ConfigError(
                f"listeners: {listener.name} at {format_address(listener.host, listener.port)} has no "
                f"authentication and other machines may reach it. {_ways_to_authenticate(listener)}, bind it "
                "to 127.0.0.1, or accept anonymous clients with --allow-anonymous "
                "(listeners.allow.anonymous=true, in a container HEADRACE_LISTENERS_ALLOW_ANONYMOUS=true)"
            )


def _ways_to_authenticate(listener: ListenerConfig) -> str:
    if listener.tls:
        return "Set ssl.client.auth=required"
    return "Give it the security protocol SASL_SSL, or SSL with ssl.client.auth=required"


def _listener(
    text: str,
    name: str,
    bound: tuple[str, int],
    advertised: tuple[str, int],
    protocol: str | None = None,
) -> ListenerConfig:
    """Without a protocol: the one that the listener is named after, or none."""
    return ListenerConfig(
        name=name,
        host=bound[0],
        port=bound[1],
        advertised_host=_advertised_host(f"Listener {text!r}", name, advertised[0]),
        advertised_port=advertised[1],
        security_protocol=protocol or (name if name in SECURITY_PROTOCOLS else PLAINTEXT),
    )


def _options(text: str, options: list[str]) -> tuple[tuple[str, int] | None, str | None]:
    """The advertised address and the security protocol, where given."""
    given: dict[str, str] = {}
    for option in options:
        key, _, value = option.partition("=")
        if key not in ("advertise", "protocol") or key in given:
            raise ConfigError(
                f"Listener {text!r}: {option!r} is not understood; one advertise=host:port and one "
                f"protocol= of {', '.join(SECURITY_PROTOCOLS)} may follow"
            )
        given[key] = value
    protocol = given["protocol"].upper() if "protocol" in given else None
    if protocol is not None and protocol not in SECURITY_PROTOCOLS:
        raise ConfigError(
            f"Listener {text!r}: {protocol!r} is none of the protocols {', '.join(SECURITY_PROTOCOLS)}"
        )
    return (_split_address(text, given["advertise"]) if "advertise" in given else None), protocol


def _addresses(key: str, entries: Iterable[str]) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for entry in entries:
        try:
            name, host, port = _split_listener(entry)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from None
        if name in found:
            raise ConfigError(f"{key}: listener {name} is named twice")
        found[name] = (host, port)
    return found


def _split_listener(text: str) -> tuple[str, str, int]:
    match = _LISTENER.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"Listener {text!r}: expected NAME://host:port")
    return (_checked_name(text, match["name"]), *_split_address(text, match["address"]))


def _split_address(text: str, address: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(address.strip())
    if match is None:
        raise ConfigError(
            f"Listener {text!r}: {address!r} is not host:port (an IPv6 host is written [::1]:9092)"
        )
    port = int(match["port"])
    if port > 65535:
        raise ConfigError(f"Listener {text!r}: port {port} is larger than 65535")
    if match["v6"] is None:
        return _checked_host(text, match["host"]), port
    try:
        return str(ipaddress.IPv6Address(match["v6"])), port
    except ValueError:
        raise ConfigError(f"Listener {text!r}: {match['v6']!r} is not an IPv6 address") from None


def _checked_name(text: str, name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"Listener {text!r}: {name!r} is not a listener name (letters, digits, '.', '_', '-')"
        )
    return name.upper()  # as Kafka does: names differ in more than case


def _checked_host(text: str, host: str) -> str:
    if _HOST.fullmatch(host) is None:
        raise ConfigError(f"Listener {text!r}: {host!r} is not a host name or address")
    return host


def _advertised_host(where: str, name: str, host: str) -> str:
    if host == "":
        return socket.gethostname()
    if host in _EVERY_INTERFACE:
        raise ConfigError(
            f"{where}: {name} would tell clients to connect to {host}, which is no address: "
            f"advertise one that they can reach (advertised.listeners={name}://host:port, "
            "or ,advertise=host:port on the command line)"
        )
    return host


def _check_distinct_ports(bound: Mapping[str, tuple[str, int]]) -> None:
    owners: dict[tuple[bool, int], str] = {}
    for name, (host, port) in bound.items():
        if port == 0:
            continue
        other = owners.setdefault((":" in host, port), name)
        if other != name:
            raise ConfigError(f"listeners: {other} and {name} both ask for port {port}; give each its own")


def _protocol_map(entries: Iterable[str]) -> dict[str, str]:
    protocol_of: dict[str, str] = {}
    for entry in entries:
        name, colon, protocol = (part.strip().upper() for part in entry.partition(":"))
        if not colon or protocol not in SECURITY_PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {entry!r} is not NAME:PROTOCOL "
                f"with a protocol of {', '.join(SECURITY_PROTOCOLS)}"
            )
        if name in protocol_of:
            raise ConfigError(f"listener.security.protocol.map: listener {name} is named twice")
        protocol_of[name] = protocol
    return protocol_of


def _served_protocol(name: str, protocol_of: Mapping[str, str]) -> str:
    protocol = protocol_of.get(name)
    if protocol is None:
        raise ConfigError(
            f"listeners: no security protocol is given for {name}; "
            f"add {name}:{PLAINTEXT} to listener.security.protocol.map"
        )
    return protocol
