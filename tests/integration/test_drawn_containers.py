# SPDX-License-Identifier: Apache-2.0
"""The container image and the drawn compose file, without a container engine.

The Dockerfile's own steps run in a folder of their own, and what it installs is used: ZooKeeper and a node
with the compose file's variables on free ports, the tools and the program with the drawn commands.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from headrace.cluster.engines.engine import EngineError, free_ports
from headrace.cluster.engines.zookeeper import ZooKeeperEnsemble, prepare_zookeeper
from headrace.cluster.engines.zookeeper_jars import why_zookeeper_is_missing
from headrace.kernels.build import find_compiler
from tests.harness.left_out import leave_out
from tests.harness.live.clean_root import CleanRoot, StepFailed, is_unreachable, json_form, read_dockerfile
from tests.harness.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
INSTRUCTIONS = read_dockerfile((ROOT / "Dockerfile").read_text())
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
READY_S = 60
TOOLS = ("kafka-topics", "kafka-console-producer", "kafka-console-consumer", "kafka-consumer-groups")

DRAWN_CREATE = r"""docker exec kafka kafka-topics --create \
  --topic multi-topic \
  --bootstrap-server localhost:9092 \
  --partitions 3 \
  --replication-factor 1"""
DRAWN_CONSUMER = r".\kafka-demo.exe -mode consumer -topic multi-topic -group my-group"
DRAWN_PRODUCER = r".\kafka-demo.exe -mode producer -topic multi-topic"


def _built(folder: Path, **variables: str) -> CleanRoot:
    image = CleanRoot(folder=folder, context=ROOT, variables=variables)
    try:
        image.build(INSTRUCTIONS)
    except StepFailed as failure:
        if is_unreachable(failure):
            leave_out("the container image", "no package index can be reached")
        raise
    return image


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> CleanRoot:
    if find_compiler() is None:
        leave_out("the container image", "no C compiler (cc): install gcc or clang")
    return _built(tmp_path_factory.mktemp("image"))


def test_only_the_user_of_the_container_is_left_out(image: CleanRoot) -> None:
    assert len(image.left_out) == 1
    assert image.left_out[0].startswith("useradd --uid 1000")


def test_every_tool_is_on_the_path_and_where_apache_kafka_has_it(image: CleanRoot) -> None:
    for tool in TOOLS:
        for name in (tool, f"{tool}.sh", f"/opt/kafka/bin/{tool}.sh"):
            done = image.run([name, "--help"])
            assert (done.returncode, done.stdout.split()[:2]) == (0, ["usage:", tool]), done.stderr


def test_without_a_compiler_the_build_fails_and_says_why(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="the kernels are not compiled, and HEADRACE_REQUIRE_KERNELS is set"):
        _built(tmp_path, CC="")


class Container:
    """The compose file's service `kafka` as a process of the image, on free ports."""

    def __init__(self, image: CleanRoot, directory: Path, zookeeper: str) -> None:
        self.image = image
        self.outer, self.inner, self.metrics = free_ports(3)
        self.ports = {"9092": str(self.outer), "29092": str(self.inner), "9404": str(self.metrics)}
        directory.mkdir(exist_ok=True)
        self.log = directory / "kafka.log"
        self.variables = {
            **{name: self._here(value) for name, value in image.environment.items() if name != "PATH"},
            **{
                name: self._here(value) for name, value in COMPOSE["services"]["kafka"]["environment"].items()
            },
            "KAFKA_LOG_DIRS": str(directory / "data"),
            "KAFKA_ZOOKEEPER_CONNECT": zookeeper,
        }

    def start(self) -> None:
        (entry_point,) = [each.text for each in INSTRUCTIONS if each.name == "ENTRYPOINT"]
        name, *arguments = json_form(entry_point)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [self.image.program(name), *arguments],
                env=self.image.process_environment(self.variables),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def healthy(self) -> bool:
        assert self.process.poll() is None, f"the node ended:\n{self.log.read_text()}"
        (check,) = [each.text for each in INSTRUCTIONS if each.name == "HEALTHCHECK"]
        return self.image.run(json_form(check), self.variables).returncode == 0

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(READY_S)

    def docker_exec(self, drawn: str, stdin: str = "") -> str:
        """`docker exec [-i] kafka COMMAND`: its output; fails the test when it failed."""
        words = shlex.split(self._here(drawn.replace("\\\n", " ")))
        command = words[words.index("kafka") + 1 :]
        done = self.image.run(command, self.variables, stdin)
        assert done.returncode == 0, f"{drawn}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def program(self, drawn: str, *more: str) -> subprocess.Popen[str]:
        r"""`.\PROGRAM.exe -option …` on the host, against the outer port."""
        name, *options = drawn.split()
        program = self.image.program(name.removeprefix(".\\").removesuffix(".exe"))
        bootstrap = ("-bootstrap", f"localhost:{self.outer}")
        return subprocess.Popen(
            [program, *options, *bootstrap, *more],
            env={**self.image.process_environment(), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _here(self, text: str) -> str:
        """Ports of this machine; names and addresses of the container's network are the loopback here."""
        for drawn, here in self.ports.items():
            text = re.sub(rf"\b{drawn}\b", here, str(text))
        return text.replace("0.0.0.0", "127.0.0.1").replace("//kafka:", "//127.0.0.1:")


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    if reason := why_zookeeper_is_missing():
        leave_out("ZooKeeper", reason)
    try:
        ensemble = prepare_zookeeper(tmp_path_factory.mktemp("zookeeper"))
    except EngineError as error:
        leave_out("ZooKeeper", str(error))
    with ensemble:
        yield ensemble


@pytest.fixture(scope="module")
def container(
    image: CleanRoot, zookeeper: ZooKeeperEnsemble, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Container]:
    running = Container(image, tmp_path_factory.mktemp("kafka"), zookeeper.hosts)
    running.start()
    try:
        wait_until(running.healthy, "a healthy container", timeout_s=READY_S, poll_s=0.2)
        yield running
    finally:
        assert running.stop() == 0


@pytest.mark.row("D20")
def test_the_drawn_commands_get_what_is_drawn(container: Container) -> None:
    assert container.docker_exec(DRAWN_CREATE) == "Created topic multi-topic.\n"
    listed = container.docker_exec("docker exec kafka kafka-topics --list --bootstrap-server localhost:9092")
    assert "multi-topic" in listed.splitlines()
    consumers = [container.program(DRAWN_CONSUMER) for _ in range(3)]
    try:
        describe = (
            "docker exec kafka kafka-consumer-groups --bootstrap-server localhost:9092 "
            "--describe --group my-group --members"
        )
        wait_until(
            lambda: [row.split()[-1] for row in _rows(container, describe)] == ["1", "1", "1"],
            "three members with a partition each",
            timeout_s=READY_S,
            poll_s=0.5,
        )
        producer = container.program(DRAWN_PRODUCER, "-pause", "0")
        sent, _ = producer.communicate(timeout=READY_S)
        assert sent.count("] message ") == 30
        offsets = describe.replace("--members", "")
        wait_until(
            lambda: (
                sum(int(row.split()[3]) for row in _rows(container, offsets) if row.split()[3] != "-") == 30
            ),
            "30 committed messages",
            timeout_s=READY_S,
            poll_s=0.5,
        )
    finally:
        for consumer in consumers:
            consumer.terminate()
    read = [consumer.communicate(timeout=READY_S)[0] for consumer in consumers]
    assert sorted(set(re.findall(r"received .* from partition (\d)", "\n".join(read)))) == ["0", "1", "2"]
    assert all(len(set(re.findall(r"received .* from partition (\d)", text))) == 1 for text in read)
    assert sum(text.count("received ") for text in read) == 30


def _rows(container: Container, command: str) -> list[str]:
    """The lines of a table below its header; none while the group is being made."""
    words = shlex.split(container._here(command))[3:]
    done = container.image.run(words, container.variables)
    return [line for line in done.stdout.splitlines() if line.startswith("my-group")]


@pytest.mark.row("D20")
def test_outer_and_inner_listener_tell_their_own_address(container: Container) -> None:
    """A producer inside the network and a consumer on the host meet in one topic."""
    inner = "docker exec -i kafka kafka-console-producer --bootstrap-server kafka:29092 --topic test-topic"
    keys = " --property parse.key=true --property key.separator=:"
    messages = "".join(f"user-{number}:msg{number}\n" for number in (1, 2, 3))
    container.docker_exec(inner.replace("kafka:29092", "127.0.0.1:29092") + keys, stdin=messages)
    outer = (
        "docker exec kafka kafka-console-consumer --bootstrap-server localhost:9092 --topic test-topic "
        "--from-beginning --max-messages 3 --property print.key=true --property print.offset=true"
    )
    assert container.docker_exec(outer).splitlines() == [
        f"Offset:{number - 1}\tuser-{number}\tmsg{number}" for number in (1, 2, 3)
    ]


def test_its_coordination_is_in_zookeeper(container: Container, zookeeper: ZooKeeperEnsemble) -> None:
    kazoo = pytest.importorskip("kazoo.client")
    client = kazoo.KazooClient(hosts=zookeeper.hosts)
    client.start(timeout=READY_S)
    try:
        assert client.get_children("/headrace/entries")
        assert "KAFKA_ZOOKEEPER_CONNECT" not in container.log.read_text(), "not ignored"
    finally:
        client.stop()
        client.close()


@pytest.fixture
def three_voters(
    image: CleanRoot, zookeeper: ZooKeeperEnsemble, tmp_path: Path
) -> Iterator[Callable[[str], list[Container]]]:
    """Starts three containers with the usual variables for three voters, and the fix of the refusal."""
    started: list[Container] = []

    def start(name: str) -> list[Container]:
        voters = ",".join(f"{number}@kafka-{number}:9093" for number in (1, 2, 3))
        for number in (1, 2, 3):
            node = Container(image, tmp_path / f"{name}-{number}", zookeeper.hosts)
            del node.variables["KAFKA_BROKER_ID"], node.variables["KAFKA_ZOOKEEPER_CONNECT"]
            node.variables |= {
                "KAFKA_NODE_ID": str(number),
                "KAFKA_PROCESS_ROLES": "broker,controller",
                "KAFKA_CONTROLLER_QUORUM_VOTERS": voters,
                "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "3",
                "HEADRACE_COORDINATION": f"zk://{zookeeper.hosts}/{name}",
                "HEADRACE_ALLOW_SAME_HOST": "true",
            }
            node.start()
            started.append(node)
        for node in started:
            wait_until(node.healthy, "a healthy container", timeout_s=READY_S, poll_s=0.2)
        return started

    yield start
    for node in started:
        node.process.kill()
        node.process.wait()


def test_three_voters_with_a_shared_store_are_one_cluster(
    three_voters: Callable[[str], list[Container]],
) -> None:
    first, second, third = three_voters("three")
    create = "docker exec kafka kafka-topics --create --topic t --replication-factor 3 --bootstrap-server"
    assert first.docker_exec(f"{create} localhost:9092") == "Created topic t.\n"
    described = second.docker_exec(
        "docker exec kafka kafka-topics --describe --topic t --bootstrap-server localhost:9092"
    )
    (replicas,) = re.findall(r"Replicas: (\S+)", described)
    assert sorted(replicas.split(",")) == ["1", "2", "3"]
    produce = "docker exec -i kafka kafka-console-producer --bootstrap-server localhost:9092 --topic t"
    second.docker_exec(f"{produce} --request-required-acks all", stdin="once\n")
    consume = "docker exec kafka kafka-console-consumer --bootstrap-server localhost:9092 --topic t"
    assert third.docker_exec(f"{consume} --from-beginning --max-messages 1") == "once\n"
