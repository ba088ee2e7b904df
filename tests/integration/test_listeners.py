# SPDX-License-Identifier: Apache-2.0
"""Two listeners (D20): a client outside and a client inside are each told addresses that they can reach."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.cluster.engines.engine import free_ports
from tests.harness.left_out import leave_out
from tests.harness.live.node import NodeProcess

StartNode = Callable[..., NodeProcess]
TIMEOUT_S = 20
NAMESPACE, OUTER_LINK, INNER_LINK = (f"{name}{os.getpid() % 100_000}" for name in ("headrace-", "hro", "hri"))


def _round_trip(bootstrap: str, topic: str, value: bytes) -> None:
    """Goes to the address in the metadata, not to the bootstrap address: a wrong one would not answer."""
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": TIMEOUT_S * 1000})
    producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(1, TIMEOUT_S)
    assert [message.value() for message in messages] == [value]
    consumer.close()


def _told(bootstrap: str) -> set[tuple[str, int]]:
    brokers = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=TIMEOUT_S).brokers
    return {(broker.host, broker.port) for broker in brokers.values()}


@pytest.mark.row("D20")
def test_clients_of_each_listener_get_an_address_they_can_reach(start_node: StartNode) -> None:
    """The outer client knows the node as localhost, the inner one by another address of the same host."""
    try:
        socket.create_server(("127.0.0.2", 0)).close()
    except OSError:
        leave_out("two listeners", "this system has no second loopback address")
    outside, inside = free_ports(2)
    node = start_node(
        listeners=[
            f"outside=127.0.0.1:{outside},advertise=localhost:{outside}",
            f"inside=127.0.0.2:{inside},advertise=127.0.0.2:{inside}",
        ],
        port=outside,
    )
    assert _told(f"127.0.0.1:{outside}") == {("localhost", outside)}
    assert _told(f"127.0.0.2:{inside}") == {("127.0.0.2", inside)}
    _round_trip(f"127.0.0.1:{outside}", "from-outside", b"outer")
    _round_trip(f"127.0.0.2:{inside}", "from-inside", b"inner")
    assert node.alive


@pytest.mark.row("D20")
def test_a_client_in_another_network_uses_the_advertised_address(
    start_node: StartNode, tmp_path: Path
) -> None:
    """The container case for real: a network namespace that reaches the inner address and no other."""
    run = subprocess.run(["ip", "netns", "add", NAMESPACE], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        leave_out("networks of their own", f"no right to make one: {run.stderr.strip()}")
    try:
        _join_namespace()
        outside, inside = free_ports(2)
        node = start_node(
            listeners=[
                f"outside=127.0.0.1:{outside},advertise=localhost:{outside}",
                f"inside=10.77.0.1:{inside},advertise=10.77.0.1:{inside}",
            ],
            arguments=["--allow-anonymous"],
            port=outside,
        )
        _round_trip(f"127.0.0.1:{outside}", "shared", b"hello")
        script = tmp_path / "inner.py"
        script.write_text(_INNER.format(bootstrap=f"10.77.0.1:{inside}"))
        inner = subprocess.run(
            ["ip", "netns", "exec", NAMESPACE, node.command()[0], str(script)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert inner.stdout.strip() == "b'hello'", inner.stderr
    finally:
        subprocess.run(["ip", "netns", "delete", NAMESPACE], check=True)


def _join_namespace() -> None:
    for command in (
        f"ip link add {OUTER_LINK} type veth peer name {INNER_LINK} netns {NAMESPACE}",
        f"ip addr add 10.77.0.1/24 dev {OUTER_LINK}",
        f"ip link set {OUTER_LINK} up",
        f"ip -n {NAMESPACE} addr add 10.77.0.2/24 dev {INNER_LINK}",
        f"ip -n {NAMESPACE} link set {INNER_LINK} up",
    ):
        done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            leave_out("networks of their own", f"no right to make one: {done.stderr.strip()}")


_INNER = """
from confluent_kafka import Consumer, TopicPartition
consumer = Consumer({{"bootstrap.servers": "{bootstrap}", "group.id": "none"}})
consumer.assign([TopicPartition("shared", 0, 0)])
print([message.value() for message in consumer.consume(1, 20)][0])
consumer.close()
"""
