# SPDX-License-Identifier: Apache-2.0
"""One loader for a node's configuration: flags over environment over file over default.

Every error names the place (file and line, variable, or flag), the key, and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headrace.config.environment import read_environment
from headrace.config.kafka_file import leave_out_kafkas_own
from headrace.config.listeners import ListenerConfig, build_listeners, check_anonymous
from headrace.config.metrics_settings import check_metrics
from headrace.config.node_config import Explicit, NodeConfig, Origin
from headrace.config.node_settings import NODE_SETTINGS, listener_key, split_listener_key
from headrace.config.not_served import explain_unknown
from headrace.config.properties import read_properties
from headrace.config.security.sasl_settings import check_logins
from headrace.config.setting import Setting
from headrace.config.several_nodes import refuse_split, refuse_split_file
from headrace.config.tls_checks import check_tls, requires_certificate
from headrace.errors import ArgumentError, ConfigError

_CANONICAL = {alias: setting.name for setting in NODE_SETTINGS.values() for alias in setting.aliases}


def load_config(
    file: Path | None, overrides: Mapping[str, str], environment: Mapping[str, str] | None
) -> NodeConfig:
    """The configuration of a node. `overrides` are what flags set; None as environment leaves it unread."""
    given: dict[str, Explicit] = {}
    notes: tuple[str, ...] = ()
    kafkas_own: dict[str, str] = {}
    if file is not None:
        entries, kafkas_own, ignored = leave_out_kafkas_own(read_properties(file))
        notes += tuple(f"{file}: {note}" for note in ignored)
        for entry in entries:
            _accept(given, entry.key, entry.value, Origin("file", f"{file}:{entry.line}"))
    if environment is not None:
        variables, ignored = read_environment(environment)
        notes += ignored
        for variable in variables:
            _accept(
                given, variable.setting, variable.value, Origin("environment", f"variable {variable.name}")
            )
    for name, text in overrides.items():
        try:
            _accept(given, name, text, Origin("flag", "command line"))
        except ConfigError as error:
            raise ArgumentError(str(error)) from None
    bare = NodeConfig(given, ())
    refuse_split_file(str(file), kafkas_own | {"node.id": str(bare["node.id"])}, bare.coordination)
    if environment is not None:
        refuse_split(environment, bare.coordination)
    return _checked(given, notes)


def _accept(given: dict[str, Explicit], key: str, text: str, origin: Origin) -> None:
    """Adds one setting. A later source overrides an earlier one; a repeated key is an error."""
    name, setting = _find(key, origin)
    try:
        value = setting.parse(text)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    earlier = given.get(name)
    if earlier is not None and earlier.origin.kind == origin.kind and earlier.value != value:
        raise ConfigError(
            f"{origin}: {key} says {setting.shown(text)}, "
            f"but {earlier.origin} says {setting.shown(setting.format(earlier.value) or '')}; keep one"
        )
    given[name] = Explicit(value=value, origin=origin)


def _find(key: str, origin: Origin) -> tuple[str, Setting]:
    of_listener = split_listener_key(key)
    if of_listener is not None:
        listener, setting = of_listener
        return listener_key(listener, setting.name), setting
    name = _CANONICAL.get(key, key)
    if name not in NODE_SETTINGS:
        raise ConfigError(f"{origin}: {explain_unknown(key)}")
    return name, NODE_SETTINGS[name]


def _checked(given: Mapping[str, Explicit], notes: tuple[str, ...]) -> NodeConfig:
    bare = NodeConfig(given, ())
    try:
        listeners = build_listeners(
            bare["listeners"], bare["advertised.listeners"], bare["listener.security.protocol.map"]
        )
        _check_inter_broker_listener(bare, [listener.name for listener in listeners])
        _check_listener_names(bare, {listener.name for listener in listeners})
        check_tls(bare, listeners)
        notes += check_logins(listeners, bare.of_listener)
        check_anonymous(
            [each for each in listeners if not _identifies_clients(bare, each)],
            allowed=bare["listeners.allow.anonymous"],
        )
        notes += check_metrics(bare)
        _check_sizes(bare)
    except ConfigError as error:
        raise _placed(bare, str(error)) from None
    return NodeConfig(given, listeners, notes)


def _identifies_clients(config: NodeConfig, listener: ListenerConfig) -> bool:
    """Without a login of users: by their certificates, or as it is private to nodes."""
    private = config["headrace.inter.broker.listener.private"]
    for_nodes = listener.name == str(config["inter.broker.listener.name"]).upper()
    return requires_certificate(config, listener) or (private and for_nodes)


def _check_inter_broker_listener(config: NodeConfig, names: list[str]) -> None:
    wanted: str | None = config["inter.broker.listener.name"]
    if wanted is not None and wanted.upper() not in names:
        raise ConfigError(
            f"inter.broker.listener.name: {wanted} is not one of the listeners {', '.join(names)}"
        )
    if config["headrace.inter.broker.listener.private"] and (wanted is None or len(names) == 1):
        raise ConfigError(
            "headrace.inter.broker.listener.private: name the listener of nodes in "
            "inter.broker.listener.name, and have another one for clients"
        )


def _placed(config: NodeConfig, message: str) -> ConfigError:
    """The error with the place that set the key with which the message begins."""
    key = message.partition(":")[0].partition("=")[0]
    if key not in config.explicit:
        return ConfigError(message)
    origin = config.origin(key)
    return (ArgumentError if origin.kind == "flag" else ConfigError)(f"{origin}: {message}")


def _check_listener_names(config: NodeConfig, names: set[str]) -> None:
    """The environment may set more: containers have a listener of controllers, which is left out here."""
    for key, given in config.explicit.items():
        of_listener = split_listener_key(key)
        if of_listener is not None and of_listener[0] not in names and given.origin.kind != "environment":
            raise ConfigError(
                f"{key}: {of_listener[0]} is not one of the listeners {', '.join(sorted(names))}"
            )


def _check_sizes(config: NodeConfig) -> None:
    """Pairs that contradict each other, each refused under the name of the smaller one."""
    for smaller, larger in (
        ("message.max.bytes", "socket.request.max.bytes"),
        ("socket.request.max.bytes", "headrace.request.memory.bytes"),
        ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ):
        if config[smaller] > config[larger]:
            culprit = smaller if smaller in config.explicit else larger
            raise ConfigError(
                f"{culprit}={config[culprit]}: {smaller} ({config[smaller]}) may not exceed "
                f"{larger} ({config[larger]})"
            )
