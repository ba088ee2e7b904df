# SPDX-License-Identifier: Apache-2.0
"""T4 over SASL_SSL with ACLs, and certificates and a password that are replaced under load.

The clients of the load are the ordinary user of `headrace cluster up --secure`.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from headrace.cli import main
from headrace.cluster.engines.zookeeper import ZooKeeperEnsemble
from headrace.cluster.security import ADMIN, USER, SecurityFolder
from tests.harness import soak
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.kill_loop import ROLES, TOPIC, ConfluentLoad, Report, create_topic, strike_under_load
from tests.harness.waiting import wait_until

QUICK = {"broker.session.timeout.ms": "2000", "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path / "cluster", settings=QUICK, secure=True) as cluster:
        cluster.grant_user(TOPIC)
        yield cluster


@pytest.fixture
def on_zookeeper(
    tmp_path: Path, zookeeper_servers: Callable[..., ZooKeeperEnsemble]
) -> Iterator[LiveCluster]:
    with zookeeper_servers() as ensemble:
        place = f"zk://{ensemble.hosts}/headrace"
        with LiveCluster(tmp_path / "cluster", coordination=place, settings=QUICK, secure=True) as cluster:
            cluster.grant_user(TOPIC)
            yield cluster


def test_t4_a_kill_in_every_role_over_tls_and_logins(cluster: LiveCluster) -> None:
    strike_under_load(cluster, faults=len(ROLES), seed=soak.first_seed()).check()


def test_t4_the_same_with_zookeeper(on_zookeeper: LiveCluster) -> None:
    strike_under_load(on_zookeeper, faults=len(ROLES), seed=soak.first_seed()).check()


def test_new_certificates_and_a_new_password_under_load_fail_no_request(
    cluster: LiveCluster, tmp_path: Path
) -> None:
    security = SecurityFolder(cluster.folder.path / "security")
    old = cluster.client_options
    new = {**old, "sasl.password": "the new password"}
    create_topic(cluster, {})
    errors: list[KafkaError] = []
    load = ConfluentLoad(cluster.bootstrap, 0.005, {**old, "error_cb": errors.append})
    with load:
        load.wait_started()
        before = _certificates(cluster, security)
        _run("certs", "make", "--out", str(security.certificates), "--yes")
        wait_until(lambda: not before & _certificates(cluster, security))
        load.wait_progress()
        assert _accepted(cluster, old) == [True] * 3, "new connections trust the new certificates"
        (tmp_path / "password").write_text("the new password\n")
        admin = ("--bootstrap", cluster.bootstrap, "--command-config", str(security.client_properties(ADMIN)))
        _run("users", "password", USER, "--password-file", str(tmp_path / "password"), *admin)
        assert _accepted(cluster, new) == [True] * 3
        assert _accepted(cluster, old) == [False] * 3
        load.wait_progress()
        assert errors == []
        cluster_is_whole = cluster.metadata()
        assert cluster_is_whole is not None
        assert cluster_is_whole.under_replicated == []
    report = Report(seed=0)
    load.use(new)
    load.judge(report)
    report.check()


def _run(*words: str) -> None:
    assert main.run(list(words)) == 0


def _certificates(cluster: LiveCluster, security: SecurityFolder) -> set[bytes]:
    """Those that the nodes show on new connections."""
    context = ssl.create_default_context(cafile=security.authority)
    found = set()
    for address in cluster.bootstrap.split(","):
        host, _, port = address.rpartition(":")
        with (
            socket.create_connection((host, int(port)), 10) as raw,
            context.wrap_socket(raw, server_hostname=host) as client,
        ):
            found.add(client.getpeercert(binary_form=True) or b"")
    return found


def _accepted(cluster: LiveCluster, options: dict[str, Any]) -> list[bool]:
    """Whether each node accepts a new login."""

    def accepts(address: str) -> bool:
        client = AdminClient({**options, "bootstrap.servers": address, "log_level": 0})
        try:
            return bool(client.list_topics(timeout=5))
        except KafkaException:
            return False

    return [accepts(address) for address in cluster.bootstrap.split(",")]
