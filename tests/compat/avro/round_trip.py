# SPDX-License-Identifier: Apache-2.0
"""Writes records with an Avro schema that it registers, reads them back by its id; JSON on standard output.

Runs in an environment of its own, with `confluent-kafka[avro]`: `round_trip.py BOOTSTRAP REGISTRY TOPIC`.
"""

from __future__ import annotations

import json
import sys

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "what", "type": "string"}],
    }
)
ORDERS = [{"id": number, "what": f"thing {number}"} for number in range(50)]


def main() -> None:
    bootstrap, registry_url, topic = sys.argv[1:4]
    registry = SchemaRegistryClient({"url": registry_url})
    place = SerializationContext(topic, MessageField.VALUE)
    serialize = AvroSerializer(registry, SCHEMA)
    producer = Producer({"bootstrap.servers": bootstrap})
    for order in ORDERS:
        producer.produce(topic, serialize(order, place))
    producer.flush(30)
    deserialize = AvroDeserializer(SchemaRegistryClient({"url": registry_url}))
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"avro-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found = []
    while len(found) < len(ORDERS):
        message = consumer.poll(30)
        if message is None:
            raise SystemExit(f"only {len(found)} of {len(ORDERS)} records came")
        found.append(deserialize(message.value(), place))
    consumer.close()
    print(json.dumps({"same": found == ORDERS, "subjects": registry.get_subjects()}))


if __name__ == "__main__":
    main()
