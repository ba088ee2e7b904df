# SPDX-License-Identifier: Apache-2.0
"""A topic's settings: its own, else the node's, else the default."""

from __future__ import annotations

import pytest

from headrace.config import (
    TOPIC_SETTINGS,
    load_config,
    resolve_topic,
    validate_node_override,
    validate_topic_override,
    validate_topic_overrides,
)
from headrace.errors import ConfigError

DAY_MS = 86_400_000


def _node(**settings):
    return load_config(None, {name.replace("_", "."): text for name, text in settings.items()}, None)


def test_a_topic_without_overrides_has_the_documented_defaults():
    values = resolve_topic(_node(), {}, {})
    assert values == {name: setting.default for name, setting in TOPIC_SETTINGS.items()}


def test_a_topics_own_setting_beats_the_altered_node_setting_beats_the_loaded_one():
    node = _node(log_retention_ms="1")
    assert resolve_topic(node, {}, {})["retention.ms"] == 1
    assert resolve_topic(node, {"log.retention.ms": "2"}, {})["retention.ms"] == 2
    assert resolve_topic(node, {"log.retention.ms": "2"}, {"retention.ms": "3"})["retention.ms"] == 3


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({}, 7 * DAY_MS),
        ({"log_retention_hours": "24"}, DAY_MS),
        ({"log_retention_hours": "24", "log_retention_minutes": "5"}, 300_000),
        ({"log_retention_hours": "24", "log_retention_minutes": "5", "log_retention_ms": "6"}, 6),
        ({"log_retention_hours": "-1"}, -1),
        ({"log_retention_minutes": "-1"}, -1),
    ],
)
def test_the_finer_unit_wins_and_minus_one_is_unlimited(settings, retention_ms):
    assert resolve_topic(_node(**settings), {}, {})["retention.ms"] == retention_ms


def test_roll_and_jitter_come_in_hours_too():
    values = resolve_topic(_node(log_roll_hours="2", log_roll_jitter_hours="1"), {}, {})
    assert (values["segment.ms"], values["segment.jitter.ms"]) == (7_200_000, 3_600_000)


def test_the_flush_policy_of_a_topic_follows_the_nodes():
    assert resolve_topic(_node(headrace_flush_default="os"), {}, {})["headrace.flush"] == "os"


def test_an_unknown_topic_setting_names_the_nearest():
    with pytest.raises(
        ConfigError, match=r"Unknown topic config name: retention.mss; did you mean retention.ms\?"
    ):
        validate_topic_override("retention.mss", "1")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cleanup.policy", "compress"),
        ("segment.bytes", "1000"),
        ("retention.ms", "-2"),
        ("min.insync.replicas", "0"),
        ("compression.type", "brotli"),
        ("message.timestamp.type", "createtime"),
        ("record.validation", "none"),
        ("headrace.flush", "always"),
        ("remote.storage.enable", "true"),
        ("leader.replication.throttled.replicas", "0"),
        ("compression.gzip.level", "0"),
    ],
)
def test_a_bad_topic_setting_is_refused(name, text):
    with pytest.raises(ConfigError, match=name):
        validate_topic_override(name, text)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("cleanup.policy", "compact,delete", ("compact", "delete")),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("follower.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
        ("unclean.leader.election.enable", "true", True),
        ("retention.ms", "-1", -1),
    ],
)
def test_what_connect_streams_and_kafkas_tools_set_is_accepted(name, text, value):
    assert validate_topic_override(name, text) == value


def test_overrides_that_contradict_each_other_are_refused():
    node = _node()
    with pytest.raises(ConfigError, match=r"conflict topic config setting min.compaction.lag.ms"):
        validate_topic_overrides(node, {}, {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})
    validate_topic_overrides(node, {}, {"flush.messages": "1"})
    with pytest.raises(ConfigError, match=r"set headrace.flush=ack, or leave flush.messages out"):
        validate_topic_overrides(node, {}, {"flush.messages": "1", "headrace.flush": "os"})
    with pytest.raises(ConfigError, match=r"flush.ms"):
        validate_topic_overrides(node, {"headrace.flush.default": "interval"}, {"flush.ms": "10"})


def test_only_dynamic_node_settings_can_be_altered_while_running():
    assert validate_node_override("log.retention.ms", "5") == 5
    with pytest.raises(ConfigError, match=r"Cannot update these configs dynamically: num.partitions"):
        validate_node_override("num.partitions", "5")
    with pytest.raises(ConfigError, match=r"unknown setting log.retention.m;"):
        validate_node_override("log.retention.m", "5")


def test_every_dynamic_node_setting_is_the_default_of_a_topic_setting_or_read_at_each_use():
    """Nothing else is re-read by a running node, so nothing else may claim to be dynamic."""
    from headrace.config import NODE_SETTINGS

    behind = {setting.node_name for setting in TOPIC_SETTINGS.values()} - {None}
    of_compaction = {"log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size"}
    of_scrub = {"headrace.scrub.interval.ms", "headrace.scrub.bytes.per.second"}
    of_transactions = {"headrace.transaction.version", "transaction.partition.verification.enable"}
    dynamic = {name for name, setting in NODE_SETTINGS.items() if setting.dynamic}
    assert dynamic == behind | of_compaction | of_scrub | of_transactions
