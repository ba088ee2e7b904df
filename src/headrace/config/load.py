"""One loader for a node's configuration: flags over environment over file over default.

Every error names the place (file and line, variable, or flag), the key, and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headrace.config.environment import read_environment
from headrace.config.listeners import build_listeners, check_anonymous, is_loopback
from headrace.config.node_config import Explicit, NodeConfig, Origin
from headrace.config.node_settings import NODE_SETTINGS
from headrace.config.not_served import explain_unknown
from headrace.config.properties import read_properties
from headrace.errors import ConfigError

_CANONICAL = {alias: setting.name for setting in NODE_SETTINGS.values() for alias in setting.aliases}


def load_config(
    file: Path | None, overrides: Mapping[str, str], environment: Mapping[str, str] | None
) -> NodeConfig:
    """The configuration of a node. `overrides` are what flags set; None as environment leaves it unread."""
    given: dict[str, Explicit] = {}
    notes: tuple[str, ...] = ()
    if file is not None:
        for entry in read_properties(file):
            _accept(given, entry.key, entry.value, Origin("file", f"{file}:{entry.line}"))
    if environment is not None:
        variables, notes = read_environment(environment)
        for variable in variables:
            _accept(
                given, variable.setting, variable.value, Origin("environment", f"variable {variable.name}")
            )
    for name, text in overrides.items():
        _accept(given, name, text, Origin("flag", "command line"))
    return _checked(given, notes)


def _accept(given: dict[str, Explicit], key: str, text: str, origin: Origin) -> None:
    """Adds one setting; a later source replaces an earlier one, the same source may not speak twice."""
    name = _CANONICAL.get(key, key)
    setting = NODE_SETTINGS.get(name)
    if setting is None:
        raise ConfigError(f"{origin}: {explain_unknown(key)}")
    earlier = given.get(name)
    if earlier is not None and earlier.origin.kind == origin.kind and earlier.text != text:
        raise ConfigError(
            f"{origin}: {key} says {text!r}, but {earlier.origin} says {earlier.text!r}; keep one"
        )
    try:
        value = setting.parse(text)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    given[name] = Explicit(text=text.strip(), value=value, origin=origin)


def _checked(given: Mapping[str, Explicit], notes: tuple[str, ...]) -> NodeConfig:
    bare = NodeConfig(given, ())
    try:
        listeners = build_listeners(
            bare["listeners"], bare["advertised.listeners"], bare["listener.security.protocol.map"]
        )
        check_anonymous(listeners, allowed=bare["listeners.allow.anonymous"])
        _check_metrics_address(bare)
        _check_sizes(bare)
    except ConfigError as error:
        raise ConfigError(f"{_blame(bare, str(error))}{error}") from None
    return NodeConfig(given, listeners, notes)


def _blame(config: NodeConfig, message: str) -> str:
    """The place that set the key with which a message begins."""
    key = message.partition(":")[0].partition("=")[0]
    return f"{config.origin(key)}: " if key in config.explicit else ""


def _check_metrics_address(config: NodeConfig) -> None:
    host = config["headrace.metrics.host"]
    if not is_loopback(host) and not config["listeners.allow.anonymous"]:
        raise ConfigError(
            f"headrace.metrics.host={host}: other machines may reach it and nobody is asked who he is. "
            "Keep 127.0.0.1, or allow it with --allow-anonymous (listeners.allow.anonymous=true)"
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
