# SPDX-License-Identifier: Apache-2.0
"""A node's configuration: typed values, and where each of them came from.

Made by load.py; read everywhere else. topic_values.py derives the values of a topic from it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from headrace.config.coordination_address import CoordinationAddress, SqliteAddress, parse_coordination
from headrace.config.listeners import ListenerConfig
from headrace.config.metrics_settings import PREFIX as METRICS_PREFIX
from headrace.config.node_settings import NODE_SETTINGS, listener_key
from headrace.errors import ConfigError

OriginKind = Literal["default", "file", "environment", "flag"]


class Origin(NamedTuple):
    kind: OriginKind
    where: str

    def __str__(self) -> str:
        return self.where


DEFAULT = Origin("default", "default")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explicit:
    """A setting that was set explicitly: its value and origin."""

    value: Any
    origin: Origin


class NodeConfig(Mapping[str, Any]):
    """`config["log.segment.bytes"]` is the typed value of a node setting; None when it is not set."""

    __slots__ = ("_values", "alone", "explicit", "listeners", "notes")

    alone: bool
    """Whether the store is in the node's own data directory, so that no other node can join."""
    explicit: Mapping[str, Explicit]
    """Explicitly set values by the name of the setting, or by its key for one listener (`listener_key`)."""
    listeners: tuple[ListenerConfig, ...]
    notes: tuple[str, ...]
    """Notes to log once at start-up about ignored settings."""

    def __init__(
        self,
        explicit: Mapping[str, Explicit],
        listeners: tuple[ListenerConfig, ...],
        notes: tuple[str, ...] = (),
    ) -> None:
        self.explicit = MappingProxyType(dict(explicit))
        self.listeners = listeners
        self.notes = notes
        store = explicit.get("headrace.coordination")
        self.alone = store is None or parse_coordination(store.value) == SqliteAddress()
        self._values = {
            name: explicit[name].value if name in explicit else self.default(name) for name in NODE_SETTINGS
        }

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def of_listener(self, listener: str, name: str) -> Any:
        """The value of a setting for one listener: its own, else that of the node."""
        given = self.explicit.get(listener_key(listener, name))
        return self[name] if given is None else given.value

    def key_of(self, listener: str, name: str) -> str:
        """The key that decides `of_listener`."""
        own = listener_key(listener, name)
        return own if own in self.explicit else name

    def key_of_metrics(self, name: str) -> str:
        """The key that decides a TLS setting of the operators' endpoint: its own, else that of the node."""
        own = METRICS_PREFIX + name
        return name if self._values.get(own) is None else own

    def origin(self, name: str) -> Origin:
        given = self.explicit.get(name)
        return DEFAULT if given is None else given.origin

    def default(self, name: str) -> Any:
        """The value of a setting that is not set."""
        setting = NODE_SETTINGS[name]
        return setting.default if setting.default_alone is None or not self.alone else setting.default_alone

    def text(self, name: str) -> str | None:
        """The value as Kafka's tools print it."""
        return NODE_SETTINGS[name].format(self[name])

    @property
    def data_directory(self) -> Path:
        directories = self["log.dirs"]
        return _absolute(directories[0]) if directories else default_data_directory()

    @property
    def inter_broker_listener(self) -> str:
        """Name of the listener by which nodes reach each other."""
        name: str | None = self["inter.broker.listener.name"]
        return self.listeners[0].name if name is None else name.upper()

    @property
    def coordination(self) -> CoordinationAddress:
        return parse_coordination(self["headrace.coordination"])

    @property
    def coordination_address(self) -> str:
        """As it is given to a command that does not have this node's settings."""
        given: str = self["headrace.coordination"]
        sqlite = isinstance(self.coordination, SqliteAddress)
        return f"sqlite:{self.coordination_directory}" if sqlite else given

    @property
    def coordination_directory(self) -> Path:
        """The directory of the SQLite store."""
        directory = getattr(self.coordination, "directory", None)
        return _absolute(directory) if directory else self.data_directory / "coordination"


def _absolute(directory: str) -> Path:
    return Path(directory).expanduser().absolute()


def default_data_directory() -> Path:
    """Where this platform keeps a user's application data."""
    try:
        home = Path.home()
    except RuntimeError:
        raise ConfigError(
            "no home directory to keep data in: name a directory with --data or log.dirs"
        ) from None
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "headrace"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "headrace"
    return Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "headrace"
