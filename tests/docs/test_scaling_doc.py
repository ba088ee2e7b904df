# SPDX-License-Identifier: Apache-2.0
"""docs/scaling.md names commands, options, topics and settings that exist.

Its commands are checked by test_commands.py, its figures by test_figures.py, MirrorMaker by `make compat`.
"""

from __future__ import annotations

import ast
import inspect
import re
import uuid
from pathlib import Path

import typer

from headrace.cli.commands import app
from headrace.config.topic_settings import TOPIC_SETTINGS
from headrace.coordination.documents import encode_topic
from headrace.java import LEAST_JAVA
from headrace.pipelines.spark_session.session import spark_session
from headrace.types import INTERNAL_TOPICS, PartitionState, Topic

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "scaling.md").read_text()


def test_the_commands_that_are_the_same_for_both_engines_exist() -> None:
    sentence = re.search(r"`status`.*? are the same", DOCUMENT, flags=re.DOTALL)
    assert sentence is not None
    (cluster,) = [group.typer_instance for group in app.registered_groups if group.name == "cluster"]
    assert cluster is not None
    commands = typer.main.get_group(cluster).commands
    assert set(re.findall(r"`(\w+)`", sentence[0])) <= set(commands)


def test_the_calls_of_spark_session_have_its_arguments() -> None:
    calls = re.findall(r"`(spark_session\([^`]*\))`", DOCUMENT)
    assert len(calls) == 2
    for text in calls:
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        inspect.signature(spark_session).bind(
            *call.args, **{str(each.arg): each.value for each in call.keywords}
        )


def test_java_and_the_folder_of_apache_kafka_are_those_of_the_code() -> None:
    assert f"Java {LEAST_JAVA} or newer is required" in DOCUMENT
    jars = (ROOT / "src" / "headrace" / "cluster" / "engines" / "kafka_jars.py").read_text()
    assert all(name in DOCUMENT and name in jars for name in ("KAFKA_HOME", "Maven"))


def test_internal_topics_are_those_of_the_broker() -> None:
    named = set(re.findall(r"`(__headrace_\w+)`", DOCUMENT))
    assert named
    assert named <= set(INTERNAL_TOPICS)


def test_a_thousand_partitions_take_about_as_much_as_it_says() -> None:
    assert "1,000 partitions take 100 kB" in DOCUMENT
    state = PartitionState(replicas=(1, 2, 3), leader=1, leader_epoch=5, isr=(1, 2, 3), partition_epoch=9)
    topic = Topic(name="t", topic_id=uuid.uuid4(), partitions=(state,) * 1000)
    assert 80_000 <= len(encode_topic(topic)) <= 120_000


def test_mirror_maker_leaves_out_settings_that_only_headrace_has() -> None:
    """Apache Kafka would refuse to create a topic with them."""
    pattern = re.search(r"^config\.properties\.exclude = (.+)$", DOCUMENT, flags=re.MULTILINE)
    assert pattern is not None
    excluded = [re.compile(each) for each in pattern[1].split(",")]
    own = [name for name in TOPIC_SETTINGS if name.startswith("headrace.")]
    assert own
    assert all(any(each.fullmatch(name) for each in excluded) for name in own)
