# SPDX-License-Identifier: Apache-2.0
"""Checks of `headrace doctor` on the network: ports of a node that is to start, listeners of one that runs.

Works against any Kafka. Read next: client/tools/brokers.py.
"""

from __future__ import annotations

import errno
import socket

from headrace.cli.doctor.finding import Finding
from headrace.client.bootstrap import Address
from headrace.client.cluster import Cluster
from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.client.reachable import check_reachable
from headrace.client.tools.brokers import Brokers, run

_TIMEOUT_MS = 3_000


def check_port(name: str, host: str, port: int, *, answers: bool = False) -> Finding:
    """`answers`: a Kafka broker was found there, which is what the port is for."""
    check = f"port {port}"
    if answers:
        return Finding(check=check, found=f"a Kafka broker answers there ({name})")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((host, port))
            tried.listen(1)
    except PermissionError:
        fix = "choose a port from 1024 on"
        return Finding(check=check, status="fail", found=f"this user may not listen there ({name})", fix=fix)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return Finding(
                check=check,
                status="fail",
                found=f"in use by another program ({name})",
                fix=f"choose another (headrace serve --port {port + 1}), or see who has it: ss -ltnp",
            )
        fix = "listen on an address of this host"
        return Finding(check=check, status="fail", found=f"{host}: {error.strerror} ({name})", fix=fix)
    return Finding(check=check, found=f"free ({name})")


def broker_answers(cluster: Cluster) -> bool:
    try:
        check_reachable(cluster, timeout_ms=_TIMEOUT_MS)
    except ClientError:
        return False
    return True


def check_broker(cluster: Cluster) -> list[Finding]:
    """Whether a running broker is reached, and at the addresses that it advertises."""
    check = f"broker {cluster}"
    try:
        check_reachable(cluster, timeout_ms=_TIMEOUT_MS)
        addresses = run(_advertised(cluster))
    except ClientError as error:
        return [Finding(check=check, status="fail", found=error.what, fix=error.next_step)]
    found = f"answers; it advertises {', '.join(map(str, addresses.values()))}"
    return [
        Finding(check=check, found=found),
        *(_check_advertised(cluster, node_id, address) for node_id, address in addresses.items()),
    ]


async def _advertised(cluster: Cluster) -> dict[int, Address]:
    async with Brokers(cluster, timeout_ms=_TIMEOUT_MS) as brokers:
        reply = await brokers.metadata([])
    return {int(node.node_id): Address(str(node.host), int(node.port)) for node in reply.brokers}


def _check_advertised(cluster: Cluster, node_id: int, address: Address) -> Finding:
    """Clients use these addresses for everything after the first request."""
    check = f"node {node_id}"
    try:
        run(_open(cluster, address))
    except ClientError as error:
        return Finding(
            check=check,
            status="fail",
            found=f"advertises {address}, which is not reached from here: {error.what}",
            fix="start it if it is down; else let it advertise an address that clients reach: "
            "headrace serve --listener NAME=HOST:PORT,advertise=HOST:PORT",
        )
    return Finding(check=check, found=f"reached at its advertised address {address}")


async def _open(cluster: Cluster, address: Address) -> None:
    options = cluster.security.security().open_options()
    connection = await Connection.open(address.host, address.port, timeout_ms=_TIMEOUT_MS, **options)
    await connection.close()
