# SPDX-License-Identifier: Apache-2.0
"""The suite of the Arrow client: each performance target as a line.

Most lines are ratios within one turn on one broker; Apache Kafka's column shows them against that broker.
"""

from __future__ import annotations

from bench.measures import arrow, arrow_others, limits, validation
from bench.model import KAFKA, OS, Better, Line, Measure, Suite

HIGHER, LOWER = Better.HIGHER, Better.LOWER
_BROKERS = (KAFKA, OS)


def _times(figure: str, title: str, unit: str, target: float | None = None) -> Line:
    return Line(figure=figure, title=title, unit=f"× {unit}", better=HIGHER, target=target, own=True)


def _rate(figure: str, title: str, target: float | None = None) -> Line:
    return Line(figure=figure, title=title, unit="records/s", better=HIGHER, target=target, own=True)


def _speed(figure: str, title: str) -> Line:
    return Line(figure=figure, title=title, unit="MB/s", better=HIGHER, own=True)


def _cpu(figure: str, title: str, target: float | None = None) -> Line:
    return Line(figure=figure, title=title, unit="× header only", better=LOWER, target=target, own=True)


def _read(codec: str, versus_confluent: float) -> tuple[Line, ...]:
    what = f"read 100 B records into Arrow, {codec}"
    return (
        _times("versus_confluent", f"{what}: against consume(10_000)", "confluent-kafka", versus_confluent),
        _rate("records_per_s", what),
        _rate("confluent_records_per_s", f"confluent-kafka into the same table, {codec}"),
    )


ARROW_SUITE = Suite(
    name="arrow",
    title="The Arrow client",
    measures=(
        Measure(
            name="read_plain",
            run=arrow.read_plain,
            variants=_BROKERS,
            lines=(
                *_read("uncompressed", 8.0),
                _times(
                    "versus_thrown_away", "… against a fetch that throws the bytes away", "raw fetch", 0.6
                ),
            ),
        ),
        Measure(name="read_lz4", run=arrow.read_lz4, variants=_BROKERS, lines=_read("lz4", 5.0)),
        Measure(name="read_zstd", run=arrow.read_zstd, variants=_BROKERS, lines=_read("zstd", 5.0)),
        Measure(
            name="write_plain",
            run=arrow.write_plain,
            variants=_BROKERS,
            lines=(
                _times(
                    "versus_confluent",
                    "write 100 B rows: against produce() in a loop",
                    "confluent-kafka",
                    4.0,
                ),
                _times("versus_prebuilt", "… against batches built before", "raw produce", 0.7),
                _rate("records_per_s", "write 100 B rows"),
            ),
        ),
        Measure(
            name="decode_alone",
            run=arrow.decode_alone,
            variants=(OS,),
            lines=(
                _rate("records_per_s", "decode alone, key and value of 100 B, one core", 10e6),
                _speed("mb_per_s", "… in bytes of batches"),
            ),
        ),
        Measure(
            name="limits",
            run=limits.limits,
            variants=(OS,),
            lines=(
                _speed("memcpy_mb_per_s", "for comparison: memcpy"),
                _speed("crc32c_mb_per_s", "for comparison: CRC32C"),
                _speed("loopback_mb_per_s", "for comparison: loopback, thrown away"),
            ),
        ),
        Measure(
            name="other_clients",
            run=arrow_others.other_clients,
            variants=_BROKERS,
            lines=(
                _times("versus_kafka_python", "read 100 B records: against kafka-python", "kafka-python"),
                _times("versus_aiokafka", "… against aiokafka", "aiokafka"),
                _rate("kafka_python_records_per_s", "kafka-python into the same table"),
                _rate("aiokafka_records_per_s", "aiokafka into the same table"),
            ),
        ),
        Measure(
            name="json",
            run=arrow_others.json_values,
            variants=_BROKERS,
            lines=(
                _times(
                    "versus_loads",
                    "JSON objects into typed columns: against json.loads per record",
                    "confluent-kafka",
                    8.0,
                ),
                _rate("records_per_s", "JSON objects into typed columns"),
                _rate("loads_records_per_s", "confluent-kafka and json.loads into the same columns"),
            ),
        ),
        Measure(
            name="memory",
            run=arrow_others.peak_memory,
            variants=_BROKERS,
            lines=(
                Line(
                    figure="times_budget",
                    title="peak memory of a long read, over that of reading one record",
                    unit="× budget",
                    better=LOWER,
                    target=1.5,
                    own=True,
                ),
            ),
        ),
        Measure(
            name="validation_plain",
            run=validation.uncompressed,
            variants=(OS,),
            lines=(
                _cpu("cpu_times_large", "check every record, batches of 900 kB: broker CPU", 1.15),
                _cpu("cpu_times_small", "… batches of 16 kB", 1.15),
                _cpu("cpu_times_client", "… 100 B records of confluent-kafka", 1.15),
            ),
        ),
        Measure(
            name="validation_packed",
            run=validation.compressed,
            variants=(OS,),
            lines=(
                _cpu("cpu_times_gzip", "check every record of gzip batches: broker CPU"),
                _cpu("cpu_times_snappy", "… of snappy batches"),
                _cpu("cpu_times_lz4", "… of lz4 batches"),
                _cpu("cpu_times_zstd", "… of zstd batches"),
            ),
        ),
        Measure(
            name="first_batch",
            run=arrow.first_batch,
            variants=_BROKERS,
            lines=(
                Line(
                    figure="seconds",
                    title="fresh process to first batch, over importing pyarrow",
                    unit="s",
                    better=LOWER,
                    target=0.8,
                    own=True,
                ),
            ),
        ),
    ),
)
