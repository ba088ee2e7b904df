# SPDX-License-Identifier: Apache-2.0
"""`kafka-demo`: one program, two modes: a producer that sends messages with keys, and a consumer in a group.

Against Headrace (`headrace serve`) or Apache Kafka; only the address differs. Uses the usual client library
directly, as a program of one's own would. In one terminal each:

    headrace topics create multi-topic --partitions 3
    kafka-demo -mode consumer -topic multi-topic -group my-group
    kafka-demo -mode consumer -topic multi-topic -group my-group
    kafka-demo -mode consumer -topic multi-topic -group my-group
    kafka-demo -mode producer -topic multi-topic

The consumers share the partitions. Stop one with Ctrl-C: the others take over what it had and keep their own.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.cli.output import clean, iso_time, text_of
from headrace.client.bootstrap import START_ONE, chosen_bootstrap
from headrace.client.client_config import VARIABLE, connect_with
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, as_flags
from headrace.client.kafka_errors import client_error
from headrace.client.reachable import check_reachable
from headrace.client.settings import client_settings

USERS = 24
_ROUND_S = 0.2
_LAST_ATTEMPT_S = 5
"""After Ctrl-C: for messages that are on their way, and to leave the group."""
PROTOCOLS: dict[str, dict[str, Any]] = {
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "eager": {"partition.assignment.strategy": "range,roundrobin"},
    "consumer": {"group.protocol": "consumer"},
}
EPILOG = """examples, each in a terminal of its own:
  kafka-demo -mode consumer -topic multi-topic -group my-group
  kafka-demo -mode consumer -topic orders,payments -group billing
  kafka-demo -mode producer -topic multi-topic"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """What was asked for on the command line, the event that ends it, and whether no broker answers."""

    cluster: Cluster
    topics: Sequence[str]
    group: str
    protocol: str
    messages: int
    pause_s: float
    stopping: threading.Event
    outage: threading.Event

    def produce(self) -> None:
        """Messages of one user have one key: they go to one partition and stay in order there."""
        from confluent_kafka import Producer

        # murmur2: the same key goes to the same partition as with the Java client.
        producer: Any = Producer(self._settings() | {"partitioner": "murmur2_random"})
        for number in range(self.messages):
            for topic in self.topics:
                key, value = f"user-{number % USERS + 1}", f"message {number + 1}"
                producer.produce(topic, key=key, value=value, on_delivery=self._delivered)
            producer.poll(0)  # calls _delivered() for what has arrived
            if self.stopping.wait(self.pause_s):
                break
        while producer.flush(_ROUND_S) and not self.stopping.is_set():
            pass
        undelivered = producer.flush(_LAST_ATTEMPT_S) if self.stopping.is_set() else 0
        if undelivered:
            raise ClientError(f"{undelivered} messages were not delivered", next_step=START_ONE)

    def consume(self) -> None:
        """At least once: an offset is stored when the message was processed, and committed soon after."""
        from confluent_kafka import Consumer

        settings = {
            "group.id": self.group,
            "client.id": f"consumer-{self.group}",
            "auto.offset.reset": "earliest",
            "enable.auto.offset.store": False,
        }
        consumer: Any = Consumer(self._settings() | settings | PROTOCOLS[self.protocol])
        consumer.subscribe(list(self.topics), on_assign=self._assigned, on_revoke=self._revoked)
        try:
            while not self.stopping.is_set():
                message = consumer.poll(_ROUND_S)
                if message is None:
                    continue
                if message.error() is not None:
                    raise client_error(message.error(), name=message.topic() or ", ".join(self.topics))
                self._process(message)
                consumer.store_offsets(message)
            say("leaving")
        finally:
            _close(consumer)

    def _settings(self) -> dict[str, Any]:
        return client_settings(self.cluster) | {"error_cb": self._failed}

    def _failed(self, error: Any) -> None:
        """The client library tries again by itself, and calls this after every attempt."""
        if error.name() == "_ALL_BROKERS_DOWN" and not self.outage.is_set():
            self.outage.set()
            say("no broker answers; trying again")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            raise client_error(error, name=message.topic())
        self.outage.clear()
        say(f"sent {text(message)} to {self._place(message)}, offset {message.offset()}")

    def _process(self, message: Any) -> None:
        self.outage.clear()
        say(f"received {text(message)} from {self._place(message)}, offset {message.offset()}")

    def _assigned(self, _: Any, partitions: Sequence[Any]) -> None:
        say(f"assigned {self._names(partitions)}")

    def _revoked(self, _: Any, partitions: Sequence[Any]) -> None:
        say(f"revoked {self._names(partitions)}")

    def _names(self, partitions: Sequence[Any]) -> str:
        places = sorted((place.topic, place.partition) for place in partitions)
        return ", ".join(self._named(*place) for place in places) or "nothing"

    def _place(self, message: Any) -> str:
        return self._named(message.topic(), message.partition())

    def _named(self, topic: str, partition: int) -> str:
        return f"{topic} partition {partition}" if len(self.topics) > 1 else f"partition {partition}"


def _close(consumer: Any) -> None:
    """Commits what was processed and leaves the group; without a broker that would last for minutes."""
    closing = threading.Thread(target=consumer.close, daemon=True)
    closing.start()
    closing.join(_LAST_ATTEMPT_S)


def text(message: Any) -> str:
    return f"[{text_of(message.key() or b'')}] {text_of(message.value() or b'')}"


def say(line: str) -> None:
    print(f"{iso_time(time.time() * 1000, 'seconds')}  {clean(line)}", flush=True)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = argparse.ArgumentParser(
        prog="kafka-demo",
        description="Send or receive messages, through Headrace or Apache Kafka.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    options.add_argument("-mode", "--mode", choices=["producer", "consumer"], required=True)
    options.add_argument(
        "-topic", "--topic", default="test-topic", metavar="TOPIC[,TOPIC]", help="default: test-topic"
    )
    options.add_argument(
        "-group", "--group", default="test-consumer-group", help="of a consumer; default: test-consumer-group"
    )
    bootstrap = chosen_bootstrap(None)
    options.add_argument(
        "-bootstrap", "--bootstrap", default=bootstrap, metavar="HOST:PORT", help=f"default: {bootstrap}"
    )
    options.add_argument(
        "-command-config",
        "--command-config",
        metavar="FILE",
        help=f"properties with TLS and login; default: the file that {VARIABLE} names",
    )
    options.add_argument(
        "-messages",
        "--messages",
        type=int,
        default=30,
        help="a producer sends so many to each topic; default: 30",
    )
    options.add_argument(
        "-pause", "--pause", type=float, default=0.5, help="seconds between them; default: 0.5"
    )
    options.add_argument(
        "-protocol",
        "--protocol",
        choices=list(PROTOCOLS),
        default="cooperative",
        help="how a group rebalances; cooperative (default): only partitions that move are revoked; "
        "eager: all are; consumer: the broker assigns (KIP-848)",
    )
    return options.parse_args(arguments)


def run(arguments: Sequence[str]) -> None:
    chosen = parse(arguments)
    topics = list(dict.fromkeys(name for name in chosen.topic.split(",") if name))
    demo = Demo(
        cluster=connect_with(chosen.bootstrap, chosen.command_config),
        topics=topics or ["test-topic"],
        group=chosen.group,
        protocol=chosen.protocol,
        messages=chosen.messages,
        pause_s=chosen.pause,
        stopping=threading.Event(),
        outage=threading.Event(),
    )
    check_reachable(demo.cluster)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: demo.stopping.set())
    if chosen.mode == "producer":
        demo.produce()
    else:
        demo.consume()


def main() -> None:
    try:
        run(sys.argv[1:])
    except ClientError as error:
        next_step = f"; {as_flags(error.next_step)}" if error.next_step else ""
        sys.exit(f"kafka-demo: {clean(error.what + next_step)}")


if __name__ == "__main__":
    main()
