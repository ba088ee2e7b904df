# SPDX-License-Identifier: Apache-2.0
"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: what is shown, altered and refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.broker.controller.topic_rules import NewTopic
from headrace.config import NODE_SETTINGS, TOPIC_SETTINGS
from headrace.errors import ErrorCode
from headrace.types import Topic
from tests.harness.broker.admin_node import AdminNode, on_a_node

DESCRIBE, ALTER, ALTER_SINGLY = 32, 33, 44
TOPIC, NODE, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, REMOVE, APPEND, SUBTRACT = range(4)
FROM_TOPIC, FROM_NODE, FROM_ALL_NODES, FROM_FILE, FROM_DEFAULT = range(1, 6)


async def describe(
    node: AdminNode, kind: int, name: str, *, version: int = 4, keys: list[str] | None = None, **asked: bool
) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    fields = {"include_synonyms": False, "include_documentation": False} | asked
    if version < 3:
        del fields["include_documentation"]
    return (await node.call(DESCRIBE, version, resources=[resource], **fields)).results[0]


async def shown(node: AdminNode, kind: int, name: str, key: str, **asked: Any) -> Any:
    (config,) = (await describe(node, kind, name, keys=[key], **asked)).configs
    return config


async def alter(
    node: AdminNode, kind: int, name: str, *changes: tuple[int, str, str | None], **more: Any
) -> Any:
    """Single changes (action, key, value); the answer as (code, message)."""
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configs": [
            {"config_operation": action, "name": key, "value": value} for action, key, value in changes
        ],
    }
    fields = {"validate_only": False} | more
    version = fields.pop("version", 1)
    (answer,) = (await node.call(ALTER_SINGLY, version, resources=[resource], **fields)).responses
    return answer.error_code, answer.error_message


async def replace(node: AdminNode, kind: int, name: str, configs: dict[str, str | None], **more: Any) -> Any:
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }
    fields = {"validate_only": False} | more
    version = fields.pop("version", 2)
    (answer,) = (await node.call(ALTER, version, resources=[resource], **fields)).responses
    return answer.error_code, answer.error_message


async def with_topic(node: AdminNode, **configs: str) -> None:
    given = tuple((key.replace("_", "."), value) for key, value in configs.items())
    (made,) = await node.controller.create_topics([NewTopic(name="t", configs=given)])
    assert isinstance(made, Topic)


OK = (ErrorCode.none, None)


# Describing


@pytest.mark.parametrize("version", range(1, 5))
def test_every_setting_of_a_topic_is_shown_in_every_version(version: int) -> None:
    async def scenario(node: AdminNode) -> None:
        await with_topic(node, cleanup_policy="compact")
        result = await describe(node, TOPIC, "t", version=version)
        assert (result.error_code, result.resource_type, result.resource_name) == (ErrorCode.none, TOPIC, "t")
        found = {config.name: config for config in result.configs}
        assert set(found) == set(TOPIC_SETTINGS)
        policy = found["cleanup.policy"]
        assert (policy.value, policy.config_source, policy.read_only) == ("compact", FROM_TOPIC, False)
        assert found["retention.ms"].value == "604800000"
        if version >= 3:
            assert (policy.config_type, found["retention.ms"].config_type) == (7, 5)
            assert policy.documentation is None

    on_a_node(scenario)


def test_named_settings_alone_are_shown_and_unknown_names_are_left_out() -> None:
    async def scenario(node: AdminNode) -> None:
        await with_topic(node)
        result = await describe(node, TOPIC, "t", keys=["retention.ms", "no.such", "cleanup.policy"])
        assert {config.name for config in result.configs} == {"retention.ms", "cleanup.policy"}

    on_a_node(scenario)


def test_synonyms_list_every_source_of_a_value_by_precedence() -> None:
    async def scenario(node: AdminNode) -> None:
        await with_topic(node, retention_ms="1")
        await alter(node, NODE, "1", (SET, "log.retention.ms", "2"))
        await alter(node, NODE, "", (SET, "log.retention.ms", "3"))
        config = await shown(node, TOPIC, "t", "retention.ms", include_synonyms=True)
        assert [(each.name, each.value, each.source) for each in config.synonyms] == [
            ("retention.ms", "1", FROM_TOPIC),
            ("log.retention.ms", "2", FROM_NODE),
            ("log.retention.ms", "3", FROM_ALL_NODES),
            ("log.retention.ms", "4", FROM_FILE),
            ("log.retention.hours", "168", FROM_DEFAULT),
        ]
        assert (await shown(node, TOPIC, "t", "retention.ms")).synonyms == ()

    on_a_node(scenario, settings={"log.retention.ms": "4"})


def test_the_value_and_source_of_a_topic_setting_follow_the_layers() -> None:
    async def scenario(node: AdminNode) -> None:
        await with_topic(node)

        async def value_and_source() -> tuple[str, int]:
            config = await shown(node, TOPIC, "t", "retention.ms")
            return config.value, config.config_source

        assert await value_and_source() == ("604800000", FROM_DEFAULT)
        await alter(node, NODE, "", (SET, "log.retention.ms", "30"))
        assert await value_and_source() == ("30", FROM_ALL_NODES)
        await alter(node, NODE, "1", (SET, "log.retention.ms", "20"))
        assert await value_and_source() == ("20", FROM_NODE)
        await alter(node, TOPIC, "t", (SET, "retention.ms", "10"))
        assert await value_and_source() == ("10", FROM_TOPIC)
        await alter(node, TOPIC, "t", (REMOVE, "retention.ms", None))
        await alter(node, NODE, "1", (REMOVE, "log.retention.ms", None))
        await alter(node, NODE, "", (REMOVE, "log.retention.ms", None))
        assert await value_and_source() == ("604800000", FROM_DEFAULT)

    on_a_node(scenario)


def test_documentation_comes_on_request() -> None:
    async def scenario(node: AdminNode) -> None:
        await with_topic(node)
        config = await shown(node, TOPIC, "t", "retention.ms", include_documentation=True)
        assert config.documentation == TOPIC_SETTINGS["retention.ms"].doc

    on_a_node(scenario)


def test_every_setting_of_this_node_is_shown_with_what_can_be_altered() -> None:
    async def scenario(node: AdminNode) -> None:
        result = await describe(node, NODE, "1")
        found = {config.name: config for config in result.configs}
        assert set(found) == set(NODE_SETTINGS)
        assert (found["num.partitions"].value, found["num.partitions"].config_source) == ("4", FROM_FILE)
        assert found["num.partitions"].read_only
        assert not found["log.retention.ms"].read_only
        assert found["log.retention.ms"].value is None

    on_a_node(scenario, settings={"num.partitions": "4"})


def test_the_empty_node_name_shows_what_was_altered_for_all() -> None:
    async def scenario(node: AdminNode) -> None:
        assert (await describe(node, NODE, "")).configs == ()
        await alter(node, NODE, "", (SET, "message.max.bytes", "2000"))
        (config,) = (await describe(node, NODE, "")).configs
        assert (config.name, config.value, config.config_source) == (
            "message.max.bytes",
            "2000",
            FROM_ALL_NODES,
        )

    on_a_node(scenario)


def test_secrets_are_sensitive_and_never_told() -> None:
    passwords = {name for name, setting in NODE_SETTINGS.items() if setting.kind == "password"}

    async def scenario(node: AdminNode) -> None:
        result = await describe(node, NODE, "1", include_synonyms=True)
        told = {config.name: config for config in result.configs}
        assert all(told[name].is_sensitive and told[name].value is None for name in passwords)
        assert not any(config.is_sensitive for name, config in told.items() if name not in passwords)
        assert "do-not-tell" not in repr(result)

    on_a_node(scenario, settings={**dict.fromkeys(passwords, "do-not-tell"), "headrace.metrics.port": "-1"})


def test_loggers_are_described_as_nothing() -> None:
    async def scenario(node: AdminNode) -> None:
        result = await describe(node, LOGGER, "1")
        assert (result.error_code, result.configs) == (ErrorCode.none, ())

    on_a_node(scenario)


@pytest.mark.parametrize(
    ("kind", "name", "code", "words"),
    [
        (TOPIC, "missing", ErrorCode.unknown_topic_or_partition, "'missing' does not exist"),
        (TOPIC, "a/b", ErrorCode.invalid_topic_exception, "Topic name is invalid"),
        (NODE, "9", ErrorCode.invalid_request, "expected 1, but received 9"),
        (NODE, "x", ErrorCode.invalid_request, "expected 1, but received x"),
        (LOGGER, "", ErrorCode.invalid_request, "expected 1"),
        (GROUP, "", ErrorCode.invalid_request, "Group name must not be empty"),
        (CLIENT_METRICS, "m", ErrorCode.invalid_request, "Unsupported resource type 16"),
    ],
)
def test_one_invalid_resource_does_not_fail_the_others(
    kind: int, name: str, code: ErrorCode, words: str
) -> None:
    async def scenario(node: AdminNode) -> None:
        await with_topic(node)
        asked = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": None},
            {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": None},
        ]
        refused, described = (await node.call(DESCRIBE, 4, resources=asked)).results
        assert refused.error_code is code
        assert words in refused.error_message
        assert refused.configs == ()
        assert described.error_code is ErrorCode.none

    on_a_node(scenario)


# Altering


@pytest.mark.parametrize("version", [0, 1])
def test_single_changes_leave_the_other_settings_alone(version: int) -> None:
    async def scenario(node: AdminNode) -> None:
        await with_topic(node, retention_ms="1", segment_ms="2")
        outcome = await alter(
            node,
            TOPIC,
            "t",
            (SET, "max.message.bytes", "1000"),
            (REMOVE, "segment.ms", None),
            (REMOVE, "never.set", None),
            version=version,
        )
        assert outcome == OK
        assert node.cluster.view.topics["t"].configs == {"retention.ms": "1", "max.message.bytes": "1000"}

    on_a_node(scenario)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_older_call_replaces_all_settings(version: int) -> None:
    async def scenario(node: AdminNode) -> None:
        await with_topic(node, retention_ms="1", segment_ms="2")
        assert await replace(node, TOPIC, "t", {"retention.ms": "5"}, version=version) == OK
        assert node.cluster.view.topics["t"].configs == {"retention.ms": "5"}
        assert await replace(node, TOPIC, "t", {}, version=version) == OK
        assert node.cluster.view.topics["t"].configs == {}

    on_a_node(scenario)


def test_lists_can_be_appended_to_and_subtracted_from() -> None:
    async def scenario(node: AdminNode) -> None:
        await with_topic(node)

        def policy() -> str | None:
            return node.cluster.view.topics["t"].configs.get("cleanup.policy")

        assert await alter(node, TOPIC, "t", (APPEND, "cleanup.policy", "delete")) == OK
        assert policy() == "compact,delete"
        assert await alter(node, TOPIC, "t", (APPEND, "cleanup.policy", "delete")) == OK
        assert policy() == "compact,delete"
        assert await alter(node, TOPIC, "t", (SUBTRACT, "cleanup.policy", "compact")) == OK
        assert policy() == "delete"
        assert await alter(node, TOPIC, "t", (SUBTRACT, "cleanup.policy", "compact")) == OK
        assert policy() == "delete"
        code, message = await alter(node, TOPIC, "t", (APPEND, "retention.ms", "1"))
        assert code is ErrorCode.invalid_config
        assert message == "Can't APPEND to key retention.ms because its type is not LIST."

    on_a_node(scenario, settings={"log.cleanup.policy": "compact"})


def test_node_lists_can_be_appended_to() -> None:
    async def scenario(node: AdminNode) -> None:
        assert await alter(node, NODE, "1", (APPEND, "log.cleanup.policy", "compact")) == OK
        assert node.cluster.view.node_configs["1"] == {"log.cleanup.policy": "delete,compact"}
        assert await alter(node, NODE, "1", (SUBTRACT, "log.cleanup.policy", "delete")) == OK
        assert node.cluster.view.node_configs["1"] == {"log.cleanup.policy": "compact"}

    on_a_node(scenario)


def test_validate_only_answers_alike_and_alters_nothing() -> None:
    async def scenario(node: AdminNode) -> None:
        await with_topic(node)
        version = node.cluster.view.version
        assert await alter(node, TOPIC, "t", (SET, "retention.ms", "1"), validate_only=True) == OK
        assert await replace(node, NODE, "1", {"log.retention.ms": "1"}, validate_only=True) == OK
        code, _ = await alter(node, TOPIC, "t", (SET, "retention.ms", "x"), validate_only=True)
        assert code is ErrorCode.invalid_config
        assert node.cluster.view.version == version

    on_a_node(scenario)


def test_settings_that_are_there_already_cost_no_write() -> None:
    async def scenario(node: AdminNode) -> None:
        await with_topic(node, retention_ms="1")
        version = node.cluster.view.version
        assert await alter(node, TOPIC, "t", (SET, "retention.ms", "1")) == OK
        assert node.cluster.view.version == version

    on_a_node(scenario)


def test_one_bad_change_leaves_the_whole_resource_as_it_was() -> None:
    async def scenario(node: AdminNode) -> None:
        await with_topic(node)
        code, message = await alter(
            node, TOPIC, "t", (SET, "retention.ms", "5"), (SET, "segment.bytes", "-1")
        )
        assert code is ErrorCode.invalid_config
        assert "segment.bytes" in message
        assert node.cluster.view.topics["t"].configs == {}

    on_a_node(scenario)


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code", "words"),
    [
        (TOPIC, "t", [(SET, "no.such", "1")], ErrorCode.invalid_config, "no.such"),
        (TOPIC, "missing", [(SET, "retention.ms", "1")], ErrorCode.unknown_topic_or_partition, "not exist"),
        (TOPIC, "", [(SET, "retention.ms", "1")], ErrorCode.invalid_request, "Default topic resources"),
        (TOPIC, "a/b", [(SET, "retention.ms", "1")], ErrorCode.invalid_topic_exception, "invalid"),
        (TOPIC, "t", [(SET, "retention.ms", None)], ErrorCode.invalid_request, "Null value not supported"),
        (TOPIC, "t", [(9, "retention.ms", "1")], ErrorCode.invalid_request, "Unknown operations type 9"),
        (
            TOPIC,
            "t",
            [(SET, "retention.ms", "1"), (SET, "retention.ms", "2")],
            ErrorCode.invalid_request,
            "duplicate config keys",
        ),
        (
            TOPIC,
            "t",
            [(SET, "min.compaction.lag.ms", "9"), (SET, "max.compaction.lag.ms", "5")],
            ErrorCode.invalid_config,
            "min.compaction.lag.ms",
        ),
        (NODE, "1", [(SET, "num.partitions", "3")], ErrorCode.invalid_request, "num.partitions"),
        (NODE, "1", [(SET, "no.such", "3")], ErrorCode.invalid_request, "no.such"),
        (NODE, "1", [(SET, "log.retention.ms", "soon")], ErrorCode.invalid_request, "log.retention.ms"),
        (NODE, "2", [(SET, "log.retention.ms", "1")], ErrorCode.invalid_request, "expected 1"),
        (LOGGER, "1", [(SET, "root", "DEBUG")], ErrorCode.invalid_request, "Unsupported resource type"),
        (
            NODE,
            "",
            [
                (SET, "log.cleaner.max.compaction.lag.ms", "1"),
                (SET, "log.cleaner.min.compaction.lag.ms", "2"),
            ],
            ErrorCode.invalid_request,
            "compaction.lag",
        ),
    ],
)
def test_alterations_that_cannot_be_are_refused_and_change_nothing(
    kind: int, name: str, changes: Any, code: ErrorCode, words: str
) -> None:
    async def scenario(node: AdminNode) -> None:
        await with_topic(node)
        version = node.cluster.view.version
        found, message = await alter(node, kind, name, *changes)
        assert found is code
        assert words in message
        assert node.cluster.view.version == version

    on_a_node(scenario)


def test_a_resource_named_twice_is_refused_both_times_and_others_are_altered() -> None:
    async def scenario(node: AdminNode) -> None:
        await with_topic(node)
        change = {"name": "retention.ms", "value": "1", "config_operation": SET}
        node_change = {"name": "log.retention.ms", "value": "1", "config_operation": SET}
        resources = [
            {"resource_type": TOPIC, "resource_name": "t", "configs": [change]},
            {"resource_type": NODE, "resource_name": "", "configs": [node_change]},
            {"resource_type": TOPIC, "resource_name": "t", "configs": [change]},
        ]
        answers = (await node.call(ALTER_SINGLY, 1, resources=resources, validate_only=False)).responses
        assert [answer.error_code for answer in answers] == [
            ErrorCode.invalid_request,
            ErrorCode.none,
            ErrorCode.invalid_request,
        ]
        assert node.cluster.view.topics["t"].configs == {}

    on_a_node(scenario)


def test_alterations_at_the_same_time_lose_nothing() -> None:
    async def scenario(node: AdminNode) -> None:
        await with_topic(node)
        keys = ["retention.ms", "segment.ms", "max.message.bytes", "delete.retention.ms", "flush.ms"]
        outcomes = await asyncio.gather(*(alter(node, TOPIC, "t", (SET, key, "1000")) for key in keys))
        assert outcomes == [OK] * len(keys)
        assert node.cluster.view.topics["t"].configs == dict.fromkeys(keys, "1000")

    on_a_node(scenario)


def test_a_resource_described_many_times_is_answered_once_with_all_keys_asked_for() -> None:
    async def scenario(node: AdminNode) -> None:
        await node.controller.create_topics([NewTopic(name="t"), NewTopic(name="u")])
        keys: list[list[str] | None] = [["retention.ms"], ["cleanup.policy"]]
        resources = [
            {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": each} for each in keys * 500
        ]
        resources.append({"resource_type": TOPIC, "resource_name": "u", "configuration_keys": None})
        resources.append({"resource_type": TOPIC, "resource_name": "u", "configuration_keys": ["x"]})
        t, u = (await node.call(DESCRIBE, 4, resources=resources)).results
        assert (t.resource_name, {config.name for config in t.configs}) == (
            "t",
            {"retention.ms", "cleanup.policy"},
        )
        assert (u.resource_name, len(u.configs)) == ("u", len(TOPIC_SETTINGS))

    on_a_node(scenario)
