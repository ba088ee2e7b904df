# SPDX-License-Identifier: Apache-2.0
"""The Dockerfile's steps in clean roots of Debian, and what they make: a node as the image's user, its tools.

Debian 12's own Python 3.11 stands in for Python's images; as in the slim one, the final root has no compiler.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from headrace.cluster.engines.engine import free_ports
from tests.harness.left_out import leave_out
from tests.harness.live.clean_root import StepFailed, is_unreachable, json_form, read_dockerfile
from tests.harness.live.debian_root import BaseRoots, DebianImage, NoRoot, why_no_roots
from tests.harness.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
ROOTS = BaseRoots(folder=ROOT / "build" / "debian-roots")
INSTRUCTIONS = read_dockerfile((ROOT / "Dockerfile").read_text())
READY_S = 60

pytestmark = [pytest.mark.compat_image, pytest.mark.timeout(1500)]  # the roots are made of packages once


def _text_of(instruction: str) -> str:
    (text,) = [each.text for each in INSTRUCTIONS if each.name == instruction]
    return text


@pytest.fixture(scope="module")
def roots() -> BaseRoots:
    if reason := why_no_roots():
        leave_out("the image in a clean root", reason)
    try:
        ROOTS.with_compiler()
    except NoRoot as error:
        leave_out("the image in a clean root", str(error))
    return ROOTS


def _build(image: DebianImage) -> None:
    try:
        image.build(INSTRUCTIONS)
    except StepFailed as failure:
        if is_unreachable(failure):
            leave_out("the image in a clean root", "no package index can be reached")
        raise


@pytest.fixture(scope="module")
def image(roots: BaseRoots, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebianImage]:
    built = DebianImage(
        folder=tmp_path_factory.mktemp("image"),
        context=ROOT,
        full=roots.with_compiler(),
        slim=roots.without_compiler(),
    )
    try:
        _build(built)
        yield built
    finally:
        built.remove()


class Container:
    """The entry point as a process of the image, on free ports of the loopback."""

    def __init__(self, image: DebianImage, log: Path) -> None:
        self.image = image
        self.log = log
        port, metrics = free_ports(2)
        self.bootstrap = f"localhost:{port}"
        self.variables = {
            "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
            "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{self.bootstrap}",
            "HEADRACE_METRICS_PORT": str(metrics),
        }
        self.process = image.start(json_form(_text_of("ENTRYPOINT")), self.variables, log)

    def healthy(self) -> bool:
        assert self.process.poll() is None, f"the node ended:\n{self.log.read_text()}"
        return self.execute(*json_form(_text_of("HEALTHCHECK"))).returncode == 0

    def execute(self, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return self.image.run(command, self.variables, stdin)

    def output(self, *command: str, stdin: str = "") -> str:
        done = self.execute(*command, "--bootstrap-server", self.bootstrap, stdin=stdin)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def container(image: DebianImage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    running = Container(image, tmp_path_factory.mktemp("log") / "kafka.log")
    try:
        wait_until(running.healthy, "a healthy container", timeout_s=READY_S, poll_s=0.2)
        yield running
    finally:
        running.process.terminate()
        code = running.process.wait(READY_S)
    assert code == 0, running.log.read_text()


def test_the_kernels_come_from_the_build_stage(image: DebianImage) -> None:
    """Python of the final root loads them, and nothing there could have compiled them."""
    found = image.run(["sh", "-c", "for name in python cc gcc clang; do command -v $name; done; true"])
    assert found.stdout.split() == ["/opt/headrace/bin/python"]
    assert image.stages["build"].place("/usr/bin/gcc").exists()
    where = "from headrace.kernels.library import load_library as load; print(load()._name)"
    done = image.run(["python", "-c", where])
    assert done.returncode == 0, done.stderr
    library = done.stdout.strip()
    assert library.startswith("/opt/headrace/lib/python3.11/site-packages/headrace/kernels/")
    built = image.stages["build"].root / library.lstrip("/")
    assert built.read_bytes() == image.stage.place(library).read_bytes()


def test_without_a_compiler_in_the_build_stage_the_build_fails(roots: BaseRoots, tmp_path: Path) -> None:
    slim = roots.without_compiler()
    poor = DebianImage(folder=tmp_path, context=ROOT, full=slim, slim=slim)
    try:
        with pytest.raises(StepFailed, match="the kernels are not compiled, and HEADRACE_REQUIRE_KERNELS is"):
            _build(poor)
        assert list(poor.stages) == ["build"], "it ends before the final stage"
    finally:
        poor.remove()


def test_the_node_runs_as_the_images_user_and_owns_nothing_but_its_data(container: Container) -> None:
    user = container.image.run(["id", "-u"]).stdout.strip()
    assert user == "1000"
    status = Path(f"/proc/{container.process.pid}/status").read_text()
    assert f"Uid:\t{user}\t{user}\t{user}\t{user}" in status
    assert os.readlink(f"/proc/{container.process.pid}/root") == str(container.image.stage.root)
    own = container.execute("find", "/opt", "/usr", "/etc", "/var", "-xdev", "-user", user).stdout.split()
    data = _text_of("VOLUME")
    assert data in own
    assert all(path == data or path.startswith(f"{data}/") for path in own)
    assert any(container.image.stage.place(data).iterdir()), "the node writes into the volume"


def test_kafkas_tools_of_the_image_work_on_its_node(container: Container) -> None:
    create = ("kafka-topics", "--create", "--topic", "tools", "--partitions", "3")
    assert container.output(*create, "--replication-factor", "1") == "Created topic tools.\n"
    for tool in ("kafka-topics", "kafka-topics.sh", "/opt/kafka/bin/kafka-topics.sh"):
        assert "tools" in container.output(tool, "--list").splitlines()
    container.output("kafka-console-producer", "--topic", "tools", stdin="one\ntwo\nthree\n")
    read = ("kafka-console-consumer", "--topic", "tools", "--from-beginning", "--max-messages", "3")
    assert sorted(container.output(*read).splitlines()) == ["one", "three", "two"]


def test_a_client_outside_produces_to_it_and_consumes_from_it(container: Container) -> None:
    producer = Producer({"bootstrap.servers": container.bootstrap, "acks": "all"})
    for number in range(100):
        producer.produce("outside", f"value-{number}", "key")
    assert producer.flush(READY_S) == 0
    settings = {"bootstrap.servers": container.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe(["outside"])
    try:
        read = consumer.consume(100, READY_S)
    finally:
        consumer.close()
    assert [message.value().decode() for message in read] == [f"value-{number}" for number in range(100)]


def test_the_health_check_fails_where_no_node_answers(image: DebianImage) -> None:
    nobody = {"HEADRACE_METRICS_PORT": str(free_ports(1)[0])}
    assert image.run(json_form(_text_of("HEALTHCHECK")), nobody).returncode != 0
