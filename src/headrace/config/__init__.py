# SPDX-License-Identifier: Apache-2.0
"""Configuration of nodes and topics: the tables, one loader, listeners. Pure but for reading one file.

Must not know the broker. Read next: node_settings.py, topic_settings.py (what there is), load.py (how read).
"""

from headrace.config.group_settings import GROUP_SETTINGS, validate_group_overrides
from headrace.config.listeners import ListenerConfig, listener_overrides, parse_listener
from headrace.config.load import load_config
from headrace.config.node_config import Explicit, NodeConfig, Origin, default_data_directory
from headrace.config.node_settings import NODE_SETTINGS
from headrace.config.setting import Setting
from headrace.config.topic_settings import TOPIC_SETTINGS
from headrace.config.topic_values import (
    resolve_topic,
    validate_node_override,
    validate_topic_override,
    validate_topic_overrides,
)

__all__ = [
    "GROUP_SETTINGS",
    "NODE_SETTINGS",
    "TOPIC_SETTINGS",
    "Explicit",
    "ListenerConfig",
    "NodeConfig",
    "Origin",
    "Setting",
    "default_data_directory",
    "listener_overrides",
    "load_config",
    "parse_listener",
    "resolve_topic",
    "validate_group_overrides",
    "validate_node_override",
    "validate_topic_override",
    "validate_topic_overrides",
]
