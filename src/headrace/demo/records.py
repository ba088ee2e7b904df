# SPDX-License-Identifier: Apache-2.0
"""Reads and sends records for scenes."""

from __future__ import annotations

import time
from collections.abc import Sequence

from headrace.client.tools.admin import Admin
from headrace.client.tools.producer import Delivery, OutgoingRecord, RecordProducer
from headrace.client.tools.reader import ReadRecord, RecordReader
from headrace.types import TopicPartition


def read_topic(bootstrap: str, topic: str) -> list[ReadRecord]:
    """All records of a topic up to its present end, in the order of partitions and offsets."""
    admin = Admin(bootstrap)
    partitions = [each.index for each in admin.describe_topic(topic).partitions]
    ends = admin.offsets(topic, partitions, "latest")
    starts = {TopicPartition(topic, index): 0 for index in partitions}
    stops = {TopicPartition(topic, index): ends[index] for index in partitions}
    reader = RecordReader(bootstrap, starts, stops)
    records = sorted(reader, key=lambda record: (record.partition, record.offset))
    reader.close()
    return records


def send_records(
    bootstrap: str, topic: str, records: Sequence[OutgoingRecord], *, pause_s: float = 0.0
) -> list[Delivery]:
    """Send the records, with a pause after each, and return their reports in the order of sending."""
    partitions = len(Admin(bootstrap).describe_topic(topic).partitions)
    reports: list[Delivery] = []
    producer = RecordProducer(bootstrap, topic, partitions=partitions, on_delivery=reports.append)
    for record in records:
        producer.send(record)
        time.sleep(pause_s)
    producer.close()
    return sorted(reports, key=lambda report: report.number)
