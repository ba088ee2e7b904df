# SPDX-License-Identifier: Apache-2.0
"""The variables of the container images that people already run: KAFKA_NUM_PARTITIONS=3 → num.partitions=3.

Their rule: the prefix goes, `_` becomes `.`, `__` becomes `_`, `___` becomes `-`. Bitnami's prefix is
KAFKA_CFG_; HEADRACE_ does the same and wins. What has no meaning here is ignored and logged once: a container
file only changes its image. What asks for access control is refused. Read next: several_nodes.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headrace.config.kafka_file import listener_names, without_listeners
from headrace.config.node_settings import NODE_SETTINGS, listener_key, split_listener_key
from headrace.config.not_served import asks_for_access_control, reason_not_served
from headrace.errors import ConfigError

_PREFIXES = ("KAFKA_", "HEADRACE_")
_BITNAMI_PREFIX = "KAFKA_CFG_"
_TOOL_VARIABLES = frozenset(
    {"HEADRACE_BOOTSTRAP", "HEADRACE_CLIENT_CONFIG", "HEADRACE_PASSWORD", "HEADRACE_TRACEBACK"}
)
_OTHER_IMAGE_VARIABLES = frozenset({"CLUSTER_ID"})
_ZOOKEEPER, _COORDINATION = "zookeeper.connect", "headrace.coordination"
_NAMES = {
    alias: setting.name for setting in NODE_SETTINGS.values() for alias in (setting.name, *setting.aliases)
}


class Variable(NamedTuple):
    name: str
    setting: str
    value: str


def read_environment(environment: Mapping[str, str]) -> tuple[list[Variable], tuple[str, ...]]:
    """The settings that variables give, and the lines to say about the variables that give none."""
    _refuse_access_control(environment)
    known: dict[str, Variable] = {}
    ignored: dict[str, list[str]] = {}
    unknown: list[str] = []
    for variable in _variables(environment):
        setting = _known_setting(variable.setting)
        if setting is not None:
            _add(known, variable._replace(setting=setting))
            continue
        if variable.setting == _ZOOKEEPER and variable.value.strip():
            _add(known, Variable(variable.name, _COORDINATION, _zookeeper_store(variable.value)))
            continue
        reason = reason_not_served(variable.setting)
        if reason is None:
            unknown.append(variable.name)
        else:
            ignored.setdefault(reason, []).append(variable.name)
    _derive_listeners(environment, known)
    return list(known.values()), _notes(ignored, unknown)


def _known_setting(name: str) -> str | None:
    of_listener = split_listener_key(name)
    if of_listener is not None:
        return listener_key(of_listener[0], of_listener[1].name)
    return _NAMES.get(name) or _NAMES.get("headrace." + name)


def _refuse_access_control(environment: Mapping[str, str]) -> None:
    """Refuses settings of access control that a node does not have: it would serve everybody instead."""
    names = [
        each.name
        for each in _variables(environment)
        if _known_setting(each.setting) is None and asks_for_access_control(each.setting, each.value)
    ]
    if names:
        raise ConfigError(
            f"{', '.join(sorted(names))}: Headrace has no such settings, and without them the node would "
            "serve everybody. docs/security.md lists its settings; remove these variables "
            "only where everybody who reaches the listeners may read and write everything"
        )


def image_variables(environment: Mapping[str, str]) -> dict[str, Variable]:
    """The variables by the setting that each names, whether or not we have it."""
    return {_NAMES.get(each.setting, each.setting): each for each in _variables(environment)}


def _variables(environment: Mapping[str, str]) -> Iterator[Variable]:
    """Those of the images first: of two for one setting the later one wins."""
    for name in sorted(environment, key=lambda name: (not name.startswith("KAFKA_"), name)):
        if name not in _TOOL_VARIABLES and (name.startswith(_PREFIXES) or name in _OTHER_IMAGE_VARIABLES):
            yield Variable(name, _setting_name(name), environment[name])


def _zookeeper_store(connect: str) -> str:
    """`h1:2181,h2:2181/chroot` as a store. Apache Kafka may have entries of its own in that place."""
    hosts, slash, chroot = connect.strip().partition("/")
    return f"zk://{hosts}/{chroot.rstrip('/')}/headrace" if slash and chroot else f"zk://{hosts}"


def _add(known: dict[str, Variable], variable: Variable) -> None:
    other = known.get(variable.setting)
    contradicted = other is not None and other.value != variable.value
    if other is not None and contradicted and other.name.partition("_")[0] == variable.name.partition("_")[0]:
        raise ConfigError(
            f"variable {variable.name} says {_shown(variable)}, but {other.name} says {_shown(other)}; "
            "keep one"
        )
    known[variable.setting] = variable


def _shown(variable: Variable) -> str:
    of_listener = split_listener_key(variable.setting)
    setting = of_listener[1] if of_listener else NODE_SETTINGS[variable.setting]
    return setting.shown(variable.value)


def _setting_name(variable: str) -> str:
    name = variable
    for prefix in (_BITNAMI_PREFIX, *_PREFIXES):
        name = name.removeprefix(prefix)
    return name.lower().replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def _derive_listeners(environment: Mapping[str, str], known: dict[str, Variable]) -> None:
    """As the images do: without listeners, every advertised one is listened on, on all interfaces.

    The controller's listener is left out: there is no controller quorum, so no client connects to it.
    """
    advertised = known.get("advertised.listeners")
    if "listeners" not in known and advertised is not None:
        everywhere = ",".join(_on_every_interface(entry) for entry in _entries(advertised.value))
        known["listeners"] = Variable(advertised.name, "listeners", everywhere)
    names = image_variables(environment).get("controller.listener.names")
    controllers = listener_names("" if names is None else names.value)
    for setting in ("listeners", "advertised.listeners"):
        variable = known.get(setting)
        if controllers and variable is not None:
            known[setting] = variable._replace(value=without_listeners(variable.value, controllers))


def _on_every_interface(entry: str) -> str:
    name, _, address = entry.partition("://")
    return f"{name}://0.0.0.0:{address.rpartition(':')[2]}"


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _notes(ignored: Mapping[str, list[str]], unknown: list[str]) -> tuple[str, ...]:
    notes = [f"ignored {', '.join(names)}: {reason}" for reason, names in sorted(ignored.items())]
    if unknown:
        notes.append(f"ignored, not settings of Headrace: {', '.join(unknown)}")
    return tuple(notes)
