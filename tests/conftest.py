# SPDX-License-Identifier: Apache-2.0
"""Live nodes for every test folder. HEADRACE_TEST_BOOTSTRAP runs the client tests against another broker."""

from __future__ import annotations

import gc
import itertools
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.cluster.engines.kafka import KafkaEngine
from headrace.cluster.engines.kafka_jars import why_kafka_is_missing
from headrace.cluster.engines.zookeeper import ZooKeeperEnsemble, prepare_zookeeper
from headrace.cluster.engines.zookeeper_jars import why_zookeeper_is_missing
from tests.harness import left_out, row_record, run_again, watchdog
from tests.harness.browser.fixtures import browser, browser_page, start_console  # noqa: F401
from tests.harness.gate import mark_test
from tests.harness.lanes import make_scheduler
from tests.harness.left_out import leave_out
from tests.harness.live.node import NodeProcess
from tests.harness.live.s3_server import S3Server, build_s3_server

StartNode = Callable[..., NodeProcess]
PrepareZooKeeper = Callable[..., ZooKeeperEnsemble]

_topic_numbers = itertools.count()
_ROOT = Path(__file__).resolve().parents[1]


def pytest_configure(config: pytest.Config) -> None:
    left_out.register(config)
    row_record.register(config)
    run_again.register(config)
    watchdog.register(config)
    _leave_assertions_of_headrace_alone(config)
    # Programs that tests start in processes of their own import tests.harness, too.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell has what it runs in the background ignore Ctrl-C, and so would all that the tests start.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return make_scheduler(config, log)


def _leave_assertions_of_headrace_alone(config: pytest.Config) -> None:
    """pytest parses every module of a distribution that has a plugin, to rewrite its assertions.

    In Python 3.11 parsing fails when a finalizer logs a traceback meanwhile (tests/harness/syntax.py).
    """
    hook: Any = config.pluginmanager.rewrite_hook
    if marked := getattr(hook, "_must_rewrite", None):
        marked.discard("headrace")
        hook._marked_for_rewrite_cache.clear()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Ends garbage collection before pytest parses sources for its summary.

    A finalizer that logs a traceback in the middle of `ast.parse` disturbs it in Python 3.11
    (tests/harness/syntax.py).
    """
    gc.collect()
    gc.disable()


def pytest_itemcollected(item: pytest.Item) -> None:
    mark_test(item)


@pytest.fixture
def start_node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StartNode]:
    """Starts nodes of the test's own; they are stopped at its end, and their logs shown when it failed."""
    nodes: list[NodeProcess] = []

    def start(
        settings: Mapping[str, str] | None = None,
        *,
        directory: Path | None = None,
        listeners: Sequence[str] = (),
        arguments: Sequence[str] = (),
        descriptor_limit: int | None = None,
        port: int | None = None,
    ) -> NodeProcess:
        node = NodeProcess(
            directory or tmp_path / f"node-{len(nodes)}",
            settings=settings,
            listeners=listeners,
            arguments=arguments,
            descriptor_limit=descriptor_limit,
            port=port,
        )
        nodes.append(node)
        return node.start()

    yield start
    for node in nodes:
        if node.alive:
            node.stop()
        request.node.add_report_section("call", f"log of {node.data}", node.log_tail())


@pytest.fixture
def zookeeper_servers(tmp_path: Path) -> PrepareZooKeeper:
    """Prepares servers, which a `with` starts and ends; where they cannot be had, the test skips by name."""

    def prepare(**options: Any) -> ZooKeeperEnsemble:
        if reason := why_zookeeper_is_missing():
            leave_out("ZooKeeper", reason)
        return prepare_zookeeper(tmp_path / "zookeeper", **options)

    return prepare


@pytest.fixture
def node(start_node: StartNode) -> NodeProcess:
    return start_node()


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node that many tests share: each uses topics of its own."""
    given = os.environ.get("HEADRACE_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    with NodeProcess(tmp_path_factory.mktemp("shared")) as shared:
        yield shared.bootstrap


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses; the topic itself is not created."""
    return f"{request.node.originalname[:100]}-{next(_topic_numbers)}-{os.getpid()}"


@pytest.fixture(scope="session")
def kafka_engine() -> KafkaEngine:
    """Apache Kafka's jars, fetched by Maven on first use."""
    if reason := why_kafka_is_missing():
        leave_out("Apache Kafka", reason)
    engine = KafkaEngine()
    assert engine.jars.folder.is_dir()
    return engine


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server that enforces If-None-Match; left out where there is no Go."""
    folder = tmp_path_factory.mktemp("s3")
    server = S3Server(build_s3_server(folder), folder)
    yield server
    server.stop()
