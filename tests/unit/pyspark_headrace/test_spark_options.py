# SPDX-License-Identifier: Apache-2.0
"""Options: names and aliases, values that make no sense, and options that do not go together."""

from __future__ import annotations

import pytest

from headrace.client.errors import ClientError
from pyspark_headrace.options import OffsetSpec, ReadSettings, WriteSettings, read_settings, write_settings

BROKER = {"bootstrap": "a:1"}


def read(streaming: bool = False, **options: str) -> ReadSettings:
    return read_settings({"subscribe": "orders", **BROKER, **options}, streaming=streaming)


def write(streaming: bool = False, **options: str) -> WriteSettings:
    return write_settings({**BROKER, **options}, streaming=streaming)


def test_the_official_connectors_names_are_understood() -> None:
    settings = read_settings(
        {
            "kafka.bootstrap.servers": "a:1,b:2",
            "subscribepattern": "or.*",
            "startingoffsets": "earliest",
            "failondataloss": "false",
            "maxoffsetspertrigger": "100",
            "minpartitions": "8",
            "includeheaders": "true",
            "kafka.group.id": "g",
            "kafka.isolation.level": "read_uncommitted",
            "kafka.max.poll.records": "500",
            "kafkaconsumer.polltimeoutms": "512",
            "kafka.security.protocol": "PLAINTEXT",
        },
        streaming=True,
    )
    assert settings.bootstrap == "a:1,b:2"
    assert settings.selection.includes("orders")
    assert not settings.selection.includes("my-orders")
    assert settings.on_data_loss == "skip"
    assert settings.limits.max_rows == 100
    assert (settings.min_partitions, settings.include_headers, settings.group) == (8, True, "g")
    assert not settings.committed_only


def test_streams_begin_at_the_end_and_batches_at_the_beginning() -> None:
    assert read(streaming=True).starting == OffsetSpec(kind="latest")
    assert read(streaming=False).starting == OffsetSpec(kind="earliest")


def test_starting_offsets_are_parsed() -> None:
    assert read(startingOffsets='{"orders": {"0": 23, "1": -2}}').starting == OffsetSpec(
        kind="offsets", numbers={"orders": {0: 23, 1: -2}}
    )
    assert read(startingTimestamp="1700000000000").starting.timestamp == 1_700_000_000_000
    assert read(startingOffsetsByTimestamp='{"orders": {"0": 7}}').starting.kind == "timestamps"
    assert read(startingOffsets="group", group="g").starting.kind == "group"


@pytest.mark.parametrize("assign", ['{"orders": []}', "{}"])
def test_an_assignment_names_partitions(assign: str) -> None:
    with pytest.raises(ClientError, match=r"'assign' cannot be .*; name the partitions of .*, or use"):
        read_settings({"assign": assign, **BROKER}, streaming=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffset": "earliest"}, "no option 'startingOffset'; did you mean 'startingOffsets'"),
        ({"assign": '{"orders": [0]}'}, "subscribe and assign are set"),
        ({"startingOffsets": "first"}, "'startingOffsets' cannot be 'first'; use earliest, latest, group or"),
        ({"startingOffsets": '{"orders": 5}'}, "cannot be .* write it like"),
        ({"startingOffsets": '{"orders": {"0": 1.5}}'}, "cannot be .* write it like"),
        ({"startingOffsets": "{orders"}, "it is not valid JSON"),
        ({"startingOffsets": "group"}, "no group is set"),
        ({"minPartitions": "0"}, "'minPartitions' cannot be '0'; use a whole number of at least 1"),
        ({"maxTriggerDelay": "soon"}, "write it like 500ms, 30s or 15m"),
        ({"onDataLoss": "ignore"}, "use one of fail, skip, earliest"),
        ({"includeHeaders": "yes"}, "use true or false"),
        ({"bootstrap": "host:port"}, "option 'bootstrap': 'host:port' is not a bootstrap address"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, "9 is greater than maxOffsets"),
        ({"bootstrap": "a:1", "kafka.bootstrap.servers": "b:1"}, "mean the same but differ"),
    ],
)
def test_contradictory_options_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(ClientError, match=said):
        read(**options)


@pytest.mark.parametrize("given", [{}, {"bootstrap": ""}])
def test_the_brokers_must_be_given(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", "a:1")  # of the driver: executors do not have it
    said = r"""option 'bootstrap' is not set; add \.option\("bootstrap", "HOST:PORT"\)"""
    with pytest.raises(ClientError, match=said):
        read_settings({"subscribe": "orders", **given}, streaming=False)
    with pytest.raises(ClientError, match=said):
        write_settings({"topic": "orders", **given}, streaming=True)


def test_something_has_to_be_read() -> None:
    with pytest.raises(ClientError, match="none is set; use subscribe"):
        read_settings(BROKER, streaming=False)
    with pytest.raises(ClientError, match="not a valid regular expression"):
        read_settings({"subscribePattern": "(", **BROKER}, streaming=False)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ClientError, match="'endingOffsets' is for batch reads"):
        read(streaming=True, endingOffsets="latest")


def test_writes_have_options_of_their_own() -> None:
    given = {"topic": "out", "kafka.compression.type": "zstd", "checkpointlocation": "x"}
    settings = write(streaming=True, **given)
    assert (settings.topic, settings.compression) == ("out", "zstd")
    with pytest.raises(ClientError, match="no option 'subscribe'"):
        write(streaming=True, subscribe="out")
    with pytest.raises(ClientError, match="use one of none, gzip"):
        write(streaming=True, compression="rar")


def test_exactly_once_is_the_default_where_it_is_possible() -> None:
    assert write(streaming=True).exactly_once is None
    for asked in ("batch", "off"):
        assert write(streaming=True, exactlyonce=asked).exactly_once == asked
    numbered = write(sinkId="counts", batchId="0")
    assert (numbered.exactly_once, numbered.sink_id, numbered.batch_id) == ("batch", "counts", 0)


@pytest.mark.parametrize(
    ("options", "streaming", "said"),
    [
        ({"exactlyOnce": "always"}, True, "use one of batch, off"),
        ({"batchId": "3", "sinkId": "s"}, True, "a stream numbers its batches itself"),
        ({"batchId": "3"}, False, "needs option 'sinkId'"),
        ({"batchId": "3", "sinkId": "s", "exactlyOnce": "off"}, False, "no meaning with exactlyOnce=off"),
        ({"batchId": "-1", "sinkId": "s"}, False, "a whole number of at least 0"),
        ({"commitMessageBytes": "8MB"}, False, "a whole number of at least 1"),
        ({"transactionTimeoutMs": "long"}, False, "write it like 500ms"),
    ],
)
def test_invalid_sink_options_are_refused(options: dict[str, str], streaming: bool, said: str) -> None:
    with pytest.raises(ClientError, match=said):
        write(streaming=streaming, **options)


def test_a_pattern_does_not_take_in_what_sinks_keep_for_themselves() -> None:
    anything = read_settings({"subscribePattern": ".*", **BROKER}, streaming=False).selection
    assert [anything.includes(name) for name in ("orders", "_orders", "__headrace_staging")] == [
        True,
        True,
        False,
    ]
    named = read_settings({"subscribe": "__headrace_sinks", **BROKER}, streaming=False).selection
    assert named.includes("__headrace_sinks")


def test_ids_of_topics_and_who_reports_rejects() -> None:
    options = {"bootstrap": "h:1", "subscribe": "orders"}
    assert read_settings(options, streaming=False).topic_ids == {}
    given = {**options, "topicids": '{"orders": "one"}', "reportRejects": "false"}
    settings = read_settings(given, streaming=False)
    assert (settings.topic_ids, settings.report_rejects) == ({"orders": "one"}, False)
    for wrong in ("orders", '["orders"]', '{"orders": 1}'):
        with pytest.raises(ClientError, match="option 'topicIds'"):
            read_settings({**options, "topicIds": wrong}, streaming=False)
