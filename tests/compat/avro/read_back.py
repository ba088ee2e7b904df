# SPDX-License-Identifier: Apache-2.0
"""Reads a topic by the schemas that its records name; one JSON line for each value.

Runs in an environment of its own, with `confluent-kafka[avro]`: `read_back.py BOOTSTRAP REGISTRY TOPIC N`.
"""

from __future__ import annotations

import json
import sys

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext


def main() -> None:
    bootstrap, registry_url, topic = sys.argv[1:4]
    deserialize = AvroDeserializer(SchemaRegistryClient({"url": registry_url}))
    place = SerializationContext(topic, MessageField.VALUE)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"back-{topic}"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    for message in consumer.consume(int(sys.argv[4]), timeout=30):
        print(json.dumps(deserialize(message.value(), place), default=str))
    consumer.close()


if __name__ == "__main__":
    main()
