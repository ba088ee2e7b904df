"""The variables of the container images that people already run: KAFKA_NUM_PARTITIONS=3 → num.partitions=3.

Their rule: the prefix goes, `_` becomes `.`, `__` becomes `_`, `___` becomes `-`. HEADRACE_ does the same and
wins. What has no meaning here is ignored and said once: a container file only changes its image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.config.node_settings import NODE_SETTINGS
from headrace.config.not_served import reason_not_served
from headrace.errors import ConfigError

_PREFIXES = ("KAFKA_", "HEADRACE_")
_TOOL_VARIABLES = frozenset({"HEADRACE_BOOTSTRAP", "HEADRACE_TRACEBACK"})
_OTHER_IMAGE_VARIABLES = frozenset({"CLUSTER_ID"})
_NAMES = {
    alias: setting.name for setting in NODE_SETTINGS.values() for alias in (setting.name, *setting.aliases)
}


class Variable(NamedTuple):
    name: str
    setting: str
    value: str


def read_environment(environment: Mapping[str, str]) -> tuple[list[Variable], tuple[str, ...]]:
    """The settings that variables give, and the lines to say about the variables that give none."""
    known: dict[str, Variable] = {}
    ignored: dict[str, list[str]] = {}
    unknown: list[str] = []
    for name in sorted(environment, key=lambda name: (not name.startswith("KAFKA_"), name)):
        if name in _TOOL_VARIABLES or not (name.startswith(_PREFIXES) or name in _OTHER_IMAGE_VARIABLES):
            continue
        setting = _NAMES.get(_setting_name(name)) or _NAMES.get("headrace." + _setting_name(name))
        if setting is not None:
            _add(known, Variable(name, setting, environment[name]))
            continue
        reason = reason_not_served(_setting_name(name))
        if reason is None:
            unknown.append(name)
        else:
            ignored.setdefault(reason, []).append(name)
    _derive_listeners(environment, known)
    return list(known.values()), _notes(ignored, unknown)


def _add(known: dict[str, Variable], variable: Variable) -> None:
    other = known.get(variable.setting)
    contradicted = other is not None and other.value != variable.value
    if other is not None and contradicted and other.name.partition("_")[0] == variable.name.partition("_")[0]:
        raise ConfigError(
            f"variable {variable.name} says {variable.value!r}, but {other.name} says {other.value!r}; "
            "keep one"
        )
    known[variable.setting] = variable


def _setting_name(variable: str) -> str:
    name = variable
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name.lower().replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def _derive_listeners(environment: Mapping[str, str], known: dict[str, Variable]) -> None:
    """As the images do: without listeners, every advertised one is listened on, on all interfaces.

    The controller's listener is left out: there is no quorum of controllers, so nobody would ever call there.
    """
    advertised = known.get("advertised.listeners")
    if "listeners" not in known and advertised is not None:
        everywhere = ",".join(_on_every_interface(entry) for entry in _entries(advertised.value))
        known["listeners"] = Variable(advertised.name, "listeners", everywhere)
    controllers = {name.upper() for name in _entries(environment.get("KAFKA_CONTROLLER_LISTENER_NAMES", ""))}
    for setting in ("listeners", "advertised.listeners"):
        variable = known.get(setting)
        if controllers and variable is not None:
            kept = [e for e in _entries(variable.value) if e.partition("://")[0].upper() not in controllers]
            known[setting] = variable._replace(value=",".join(kept))


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
