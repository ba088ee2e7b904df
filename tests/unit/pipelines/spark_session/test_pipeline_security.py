# SPDX-License-Identifier: Apache-2.0
"""A pipeline's security: from the file of a client or options, for source and sinks, shown nowhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headrace.client.errors import ClientError
from headrace.pipelines.checks import check_topics
from headrace.pipelines.definitions.definition_file import pipelines_of
from headrace.pipelines.jobs.records import source_options, topic_options
from headrace.pipelines.spark_session.session import default_settings

PASSWORD = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.password": "s3cret", "minPartitions": "8"}


def copies(**top: object) -> list[Any]:
    document: dict[str, Any] = {
        **top,
        "copy": {
            "one": {"topic": "a", "to": "b"},
            "two": {"topic": "c", "to": "d", "config": "/own.properties"},
            "three": {"topic": "e", "to": "f", "options": PASSWORD},
        },
    }
    return list(pipelines_of(document, "p.toml", config="/default.properties").pipelines)


def test_the_file_of_a_client_is_given_to_source_and_sink() -> None:
    one, two, _ = copies()
    assert source_options(one, group=None, stop_file="x")["config"] == "/default.properties"
    assert topic_options(two, "d")["config"] == "/own.properties"
    one, two, _ = copies(config="~/file.properties")
    assert topic_options(one, "b")["config"] == str(Path("~/file.properties").expanduser())


def test_single_settings_are_given_to_the_sink_and_shown_nowhere() -> None:
    *_, three = copies()
    given = topic_options(three, "f")
    assert given["kafka.sasl.password"] == "s3cret"
    assert "minPartitions" not in given
    assert "s3cret" not in repr(three)


def test_topics_are_checked_with_the_pipelines_security(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match=r"none\.properties: no such configuration file"):
        check_topics(
            pipelines_of(
                {"copy": {"one": {"topic": "a", "to": "b"}}},
                "p.toml",
                config=str(tmp_path / "none.properties"),
            ).pipelines
        )


def test_a_session_hides_logins_and_keys_among_options() -> None:
    pattern = default_settings("local", ui=False)["spark.sql.redaction.options.regex"]
    for name in ("kafka.sasl.jaas.config", "kafka.ssl.keystore.key", "kafka.ssl.key.pem", "url"):
        assert re.search(pattern, name)
