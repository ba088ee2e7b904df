# SPDX-License-Identifier: Apache-2.0
"""Configs as DescribeConfigs and CreateTopics return them: value, source and synonyms.

Pure: configuration and view in, fields of a reply out. Read next: handlers/configs.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from headrace.broker.partition.settings.flush_default import NAME as FLUSH
from headrace.broker.partition.settings.flush_default import default_flush, is_flush_set
from headrace.broker.partition.settings.min_insync import NAME as MIN_INSYNC
from headrace.broker.partition.settings.min_insync import most_specific_min_insync
from headrace.config import GROUP_SETTINGS, NODE_SETTINGS, TOPIC_SETTINGS, NodeConfig, Setting, resolve_topic
from headrace.machines.replication.leader import effective_min_insync
from headrace.types import ClusterView


class Source(IntEnum):
    """Kafka's DescribeConfigsResponse.ConfigSource."""

    TOPIC = 1
    DYNAMIC_NODE = 2
    DYNAMIC_DEFAULT = 3
    STATIC_NODE = 4
    DEFAULT = 5
    GROUP = 8


_TYPES = {"boolean": 1, "string": 2, "int": 3, "short": 4, "long": 5, "double": 6, "list": 7, "password": 9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Optional parts of DescribeConfigs that a request asks for."""

    synonyms: bool = False
    documentation: bool = False


@dataclass(frozen=True, slots=True)
class _Synonym:
    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLayers:
    """The sources of a node's configs: dynamic (of this node, of all nodes), static, default."""

    config: NodeConfig
    of_node: Mapping[str, str]
    of_all: Mapping[str, str]

    @classmethod
    def of(cls, config: NodeConfig, view: ClusterView, node_id: int) -> NodeLayers:
        return cls(
            config=config,
            of_node=view.node_configs.get(str(node_id), {}),
            of_all=view.node_configs.get("", {}),
        )

    def synonyms(self, name: str) -> list[_Synonym]:
        """In order of precedence. The built-in default comes last, unless it is "not set"."""
        setting = NODE_SETTINGS[name]
        layers: tuple[tuple[str | None, Source], ...] = (
            (self.of_node.get(name), Source.DYNAMIC_NODE),
            (self.of_all.get(name), Source.DYNAMIC_DEFAULT),
            (self.config.text(name) if name in self.config.explicit else None, Source.STATIC_NODE),
            (setting.format(self.config.default(name)), Source.DEFAULT),
        )
        return [_Synonym(name, text, source) for text, source in layers if text is not None]


def topic_entries(
    layers: NodeLayers,
    overrides: Mapping[str, str],
    shown: Shown = Shown(),
    *,
    replicas: int = 1,
) -> list[dict[str, Any]]:
    """Every topic config, by name. Some defaults depend on the number of replicas."""
    altered = {**layers.of_all, **layers.of_node}
    values = resolve_topic(layers.config, altered, overrides)
    entries = []
    for name, setting in TOPIC_SETTINGS.items():
        text = setting.format(values[name])
        synonyms = [_Synonym(name, text, Source.TOPIC)] if name in overrides else []
        behind = [found for synonym in setting.synonyms for found in layers.synonyms(synonym.name)]
        synonyms += sorted(behind, key=lambda synonym: synonym.source)
        if name == MIN_INSYNC and (not synonyms or synonyms[0].source is Source.DEFAULT):
            text = str(effective_min_insync(None, replicas))
        elif name == FLUSH and not is_flush_set(layers.config, altered, overrides):
            min_insync = most_specific_min_insync(layers.config, layers.of_all, overrides)
            text = default_flush(layers.config, min_insync, replicas)
        entries.append(_entry(setting, text, synonyms, shown, read_only=False))
    return entries


def node_entries(layers: NodeLayers, shown: Shown) -> list[dict[str, Any]]:
    """Every setting of this node."""
    entries = []
    for name, setting in NODE_SETTINGS.items():
        synonyms = layers.synonyms(name)
        text = synonyms[0].value if synonyms else None
        entries.append(_entry(setting, text, synonyms, shown, read_only=not setting.dynamic))
    return entries


def group_entries(layers: NodeLayers, overrides: Mapping[str, str], shown: Shown) -> list[dict[str, Any]]:
    """Every config of a group; those without an override come from the node."""
    entries = []
    for name, setting in GROUP_SETTINGS.items():
        behind = [found for synonym in setting.synonyms for found in layers.synonyms(synonym.name)]
        synonyms = [_Synonym(name, overrides[name], Source.GROUP)] if name in overrides else []
        synonyms += behind
        entries.append(_entry(setting, synonyms[0].value, synonyms, shown, read_only=False))
    return entries


def default_entries(layers: NodeLayers, shown: Shown) -> list[dict[str, Any]]:
    """Dynamic configs of all nodes: all that Kafka returns for the empty node name."""
    return [
        _entry(
            NODE_SETTINGS[name],
            text,
            [_Synonym(name, text, Source.DYNAMIC_DEFAULT)],
            shown,
            read_only=not NODE_SETTINGS[name].dynamic,
        )
        for name, text in sorted(layers.of_all.items())
        if name in NODE_SETTINGS
    ]


def status_entry(name: str, text: str) -> dict[str, Any]:
    """What a node reports in the form of a config that nobody can set."""
    return {
        "name": name,
        "value": text,
        "read_only": True,
        "config_source": Source.DEFAULT,
        "is_sensitive": False,
        "synonyms": [],
        "config_type": _TYPES["string"],
        "documentation": None,
    }


def _entry(
    setting: Setting, text: str | None, synonyms: list[_Synonym], shown: Shown, *, read_only: bool
) -> dict[str, Any]:
    sensitive = setting.kind == "password"
    return {
        "name": setting.name,
        "value": None if sensitive else text,
        "read_only": read_only,
        "config_source": synonyms[0].source if synonyms else Source.DEFAULT,
        "is_sensitive": sensitive,
        "synonyms": [
            {"name": each.name, "value": None if sensitive else each.value, "source": each.source}
            for each in (synonyms if shown.synonyms else ())
        ],
        "config_type": _TYPES[setting.kind],
        "documentation": setting.doc if shown.documentation else None,
    }
