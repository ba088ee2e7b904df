"""The container files are small enough to be checked without a container engine."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from headrace.config import load_config

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = (ROOT / "compose.yaml").read_text()
INSTRUCTIONS = {
    "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK",
    "ENTRYPOINT",
}  # fmt: skip


def _instructions() -> list[tuple[str, str]]:
    lines = [line for line in DOCKERFILE.splitlines() if line and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in joined.splitlines()]


def _all(instruction: str) -> list[str]:
    return [rest for name, rest in _instructions() if name == instruction]


def _image_environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for rest in _all("ENV") for pair in shlex.split(rest))


def _compose_environment() -> dict[str, str]:
    pairs = re.findall(r"^ {6}([A-Z_]+): (.+)$", COMPOSE, flags=re.MULTILINE)
    return {name: value.strip('"') for name, value in pairs}


def test_the_dockerfile_has_only_instructions_that_exist():
    assert {name for name, _ in _instructions()} <= INSTRUCTIONS
    assert _instructions()[0][0] == "FROM"


def test_every_copied_file_exists_and_reaches_the_build():
    allowed = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), flags=re.MULTILINE)
    sources = [source for rest in _all("COPY") for source in rest.split()[:-1]]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert source in allowed, f".dockerignore keeps {source} out"


def test_the_node_does_not_run_as_root():
    (user,) = _all("USER")
    assert user not in ("root", "0")
    assert f"useradd --uid 1000 --no-create-home {user}" in DOCKERFILE
    names = [name for name, _ in _instructions()]
    assert names.index("USER") < names.index("ENTRYPOINT")


def test_the_data_volume_is_where_the_node_writes():
    config = load_config(None, {}, _image_environment())
    assert _all("VOLUME") == [str(config.data_directory)]
    assert f"- data:{config.data_directory}\n" in COMPOSE


def test_the_health_check_asks_the_port_that_the_image_sets():
    (check,) = _all("HEALTHCHECK")
    assert "HEADRACE_METRICS_PORT" in check
    assert "/readyz" in check
    assert load_config(None, {}, _image_environment())["headrace.metrics.port"] > 0


def test_the_health_check_is_a_python_program():
    (check,) = _all("HEALTHCHECK")
    program = re.search(r'"-c",\s+"(.+)"\]', check)
    assert program is not None
    compile(program[1], "HEALTHCHECK", "exec")


def test_the_image_alone_serves_clients_on_the_host():
    (listener,) = load_config(None, {}, _image_environment()).listeners
    assert (listener.host, listener.port, listener.advertised_host) == ("0.0.0.0", 9092, "localhost")


@pytest.mark.row("D20")
def test_the_compose_file_has_an_outer_and_an_inner_listener():
    config = load_config(None, {}, {**_image_environment(), **_compose_environment()})
    told = {each.name: (each.advertised_host, each.advertised_port) for each in config.listeners}
    assert told == {"OUTSIDE": ("localhost", 9092), "INSIDE": ("kafka", 29092)}
    assert config.notes == ()
    assert re.search(r"^  kafka:$", COMPOSE, flags=re.MULTILINE), "the inner name must be the service's"
    assert _all("EXPOSE") == [" ".join(str(each.port) for each in config.listeners)]


def test_the_compose_file_publishes_the_outer_port_on_this_machine_only():
    assert re.findall(r'^ {6}- "(.+)"$', COMPOSE, flags=re.MULTILINE) == ["127.0.0.1:9092:9092"]


def test_the_entry_point_is_a_command_of_ours():
    assert _all("ENTRYPOINT") == ['["headrace", "serve", "--from-env"]']
