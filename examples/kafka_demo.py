"""One program, two modes: a producer that sends messages with keys, and a consumer in a group.

Against Headrace (`headrace serve`) or Apache Kafka; only the address differs. In one terminal each:

    headrace topics create multi-topic --partitions 3
    python examples/kafka_demo.py -mode consumer -topic multi-topic -group my-group
    python examples/kafka_demo.py -mode consumer -topic multi-topic -group my-group
    python examples/kafka_demo.py -mode consumer -topic multi-topic -group my-group
    python examples/kafka_demo.py -mode producer -topic multi-topic

The consumers share the partitions. Stop one with Ctrl-C, and the others take over what it had.
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from datetime import datetime

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

USERS = 24


def produce(bootstrap: str, topic: str, messages: int, pause_s: float) -> None:
    """Messages of one user have one key: they go to one partition, and stay in order there."""
    # murmur2: the same key goes to the same partition as with the Java client.
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for number in range(messages):
        user = f"user-{number % USERS + 1}"
        producer.produce(topic, key=user, value=f"message {number + 1}", on_delivery=delivered)
        producer.poll(0)  # calls delivered() for what has arrived
        time.sleep(pause_s)
    producer.flush()


def delivered(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise KafkaException(error)
    say(f"sent {text(message)} to partition {message.partition()}, offset {message.offset()}")


def consume(bootstrap: str, topic: str, group: str, protocol: str) -> None:
    """At least once: an offset is stored when the message was processed, and committed soon after."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.offset.store": False,
        }
    )
    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    try:
        while not stopping.is_set():
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is not None:
                raise KafkaException(message.error())
            process(message)
            consumer.store_offsets(message)
        say("leaving")
    finally:
        consumer.close()  # commits what was processed, and tells the group


def process(message: Message) -> None:
    _, timestamp_ms = message.timestamp()
    at = datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    say(f"received {text(message)} from partition {message.partition()}, offset {message.offset()}, {at:%T}")


def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
    say(f"assigned {names(partitions)}")


def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
    say(f"revoked {names(partitions)}")


def names(partitions: list[TopicPartition]) -> str:
    return ", ".join(sorted(f"partition {place.partition}" for place in partitions)) or "nothing"


def text(message: Message) -> str:
    return f"[{(message.key() or b'').decode()}] {(message.value() or b'').decode()}"


def say(line: str) -> None:
    print(f"{time.strftime('%T')}  {line}", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description="Send or receive messages.", allow_abbrev=False)
    options.add_argument("-mode", "--mode", choices=["producer", "consumer"], required=True)
    options.add_argument("-topic", "--topic", default="test-topic")
    options.add_argument("-group", "--group", default="test-consumer-group", help="of a consumer")
    options.add_argument("-bootstrap", "--bootstrap", default="localhost:9092", metavar="HOST:PORT")
    options.add_argument("-messages", "--messages", type=int, default=30, help="a producer sends so many")
    options.add_argument("-pause", "--pause", type=float, default=0.5, help="seconds between them")
    options.add_argument("-protocol", "--protocol", choices=["classic", "consumer"], default="classic")
    chosen = options.parse_args()
    if chosen.mode == "producer":
        produce(chosen.bootstrap, chosen.topic, chosen.messages, chosen.pause)
    else:
        consume(chosen.bootstrap, chosen.topic, chosen.group, chosen.protocol)


if __name__ == "__main__":
    main()
