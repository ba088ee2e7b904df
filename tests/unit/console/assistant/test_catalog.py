# SPDX-License-Identifier: Apache-2.0
"""Tools of `headrace mcp`: every view has one, none can change anything, wrong arguments are explained."""

from __future__ import annotations

import jsonschema
import pytest

from headrace.console.assistant.asking import READING
from headrace.console.assistant.catalog import TOOLS, find_tool
from headrace.console.views.registry import VIEWS
from headrace.console.views.view import ViewError


def test_every_view_has_a_tool_and_every_tool_a_view() -> None:
    assert {tool.view for tool in TOOLS if tool.view} == set(VIEWS)


def test_what_is_no_view_is_an_endpoint_that_only_reads() -> None:
    assert all(bool(tool.view) != bool(tool.endpoint) for tool in TOOLS)
    assert {tool.endpoint for tool in TOOLS if tool.endpoint} <= set(READING)
    assert all(endpoint.method == "GET" for endpoint in READING.values())


def test_names_are_unique_and_schemas_valid() -> None:
    assert len({tool.name for tool in TOOLS}) == len(TOOLS)
    for tool in TOOLS:
        jsonschema.Draft202012Validator.check_schema(tool.schema())
        assert tool.about.endswith(".")


def test_arguments_become_parameters_of_the_view() -> None:
    params = find_tool("list_topics").params({"filter": "orders", "sort": "-lag", "limit": 5})
    assert params == {"q": "orders", "sort": "-lag", "limit": "5"}


def test_an_offset_may_be_zero_and_a_page_has_ten_records_unless_told() -> None:
    params = find_tool("read_messages").params({"topic": "a", "from": "offset", "offset": 0})
    assert params == {"topic": "a", "from": "offset", "offset": "0", "limit": "10"}


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("2026-01-31T14:05:00Z", "1769868300000"),
        ("2026-01-31T14:05:00", "1769868300000"),
        ("2026-01-31T15:05:00+01:00", "1769868300000"),
        (1769868300000, "1769868300000"),
        ("1769868300000", "1769868300000"),
    ],
)
def test_a_moment_is_iso_8601_in_utc_or_milliseconds(at: object, expected: str) -> None:
    assert find_tool("describe_group").params({"group": "g", "at": at}) == {"group": "g", "at": expected}


@pytest.mark.parametrize(
    ("tool", "given", "what", "next_step"),
    [
        ("describe_topic", {}, "describe_topic needs the argument 'topic'", "the topic's name"),
        ("describe_topic", {"name": "a"}, "describe_topic has no argument 'name'", "arguments: topic, at"),
        ("history", {"topic": "a"}, "history has no argument 'topic'", "arguments: it takes none"),
        ("list_topics", {"limit": 0}, "argument 'limit' is no whole number from 1 to 500", None),
        ("list_topics", {"limit": "²"}, "argument 'limit' is no whole number from 1 to 500", None),
        ("list_topics", {"limit": True}, "argument 'limit' is no text of up to 2000 characters", None),
        (
            "list_topics",
            {"filter": "x" * 2001},
            "argument 'filter' is no text of up to 2000 characters",
            None,
        ),
        ("list_topics", {"filter": ["a"]}, "argument 'filter' is no text of up to 2000 characters", None),
        (
            "describe_group",
            {"group": "g", "at": "yesterday"},
            "argument 'at' is no time: 'yesterday'",
            "write it as 2026-01-31T14:05:00Z",
        ),
    ],
)
def test_wrong_arguments_are_explained(
    tool: str, given: dict[str, object], what: str, next_step: str | None
) -> None:
    with pytest.raises(ViewError) as error:
        find_tool(tool).params(given)
    assert (error.value.what, error.value.next_step) == (what, next_step)


def test_an_unknown_tool_names_those_there_are() -> None:
    with pytest.raises(ViewError) as error:
        find_tool("delete_topic")
    assert error.value.what == "there is no tool 'delete_topic'"
    assert "list_topics" in (error.value.next_step or "")
