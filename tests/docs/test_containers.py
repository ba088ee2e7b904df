# SPDX-License-Identifier: Apache-2.0
"""The container files are small enough to be checked without a container engine."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from headrace.cli.kafka_tools.entry import run_tool
from headrace.cli.kafka_tools.names import TOOLS
from headrace.config import load_config
from headrace.config.coordination_address import ZooKeeperAddress
from headrace.config.environment import read_environment
from headrace.errors import ConfigError
from tests.harness.live.clean_root import json_form, read_dockerfile

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "containers.md").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
STEPS = read_dockerfile(DOCKERFILE)
COMPOSE_FILES = (ROOT / "compose.yaml", ROOT / "deploy" / "compose.three-hosts.yaml")
COMPOSE = yaml.safe_load(COMPOSE_FILES[0].read_text())
ALLOWED = "HEADRACE_LISTENERS_ALLOW_ANONYMOUS"
REFUSED = {"KAFKA_SASL_JAAS_CONFIG", "KAFKA_CLIENT_USERS"}
INSTRUCTIONS = {
    "ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK",
    "ENTRYPOINT",
}  # fmt: skip


def _all(instruction: str) -> list[str]:
    return [step.text for step in STEPS if step.name == instruction]


def _image_environment() -> dict[str, str]:
    """Of the last stage."""
    last = max(place for place, step in enumerate(STEPS) if step.name == "FROM")
    texts = [step.text for step in STEPS[last:] if step.name == "ENV"]
    return dict(pair.split("=", 1) for text in texts for pair in shlex.split(text))


def _compose_environment() -> dict[str, str]:
    return COMPOSE["services"]["kafka"]["environment"]


def test_the_dockerfile_has_only_instructions_that_exist():
    assert {step.name for step in STEPS} <= INSTRUCTIONS
    assert [step.name for step in STEPS].index("FROM") == len(_all("ARG"))


def test_base_images_can_be_pinned_by_digest():
    froms = re.findall(r"^FROM (\S+)", DOCKERFILE, flags=re.MULTILINE)
    assert froms == ["${PYTHON_IMAGE}", "${PYTHON_SLIM_IMAGE}"]
    assert {text.partition("=")[0] for text in _all("ARG")} == {each[2:-1] for each in froms}


def test_the_kernels_are_compiled_where_there_is_a_compiler():
    """Both stages are of one Debian release, or the library might need a newer C library than there is."""
    build, final = (text.split()[0] for text in _all("FROM"))
    assert build.replace("3.11-", "3.11-slim-") == final
    assert "HEADRACE_REQUIRE_KERNELS=1" in _all("ENV")[0]


def test_every_copied_file_exists_and_reaches_the_build():
    allowed = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), flags=re.MULTILINE)
    copied = [text for text in _all("COPY") if not text.startswith("--from=")]
    sources = [source for text in copied for source in text.split()[:-1]]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert source in allowed, f".dockerignore keeps {source} out"


def test_the_node_does_not_run_as_root():
    (user,) = _all("USER")
    assert user not in ("root", "0")
    assert f"useradd --uid 1000 --no-create-home {user}" in DOCKERFILE
    names = [step.name for step in STEPS]
    assert names.index("USER") < names.index("ENTRYPOINT")


def test_the_image_does_not_allow_anonymous_clients_and_says_how_to():
    with pytest.raises(ConfigError, match="HEADRACE_LISTENERS_ALLOW_ANONYMOUS=true"):
        load_config(None, {}, _image_environment())
    assert _compose_environment()[ALLOWED] == "true", "for everybody to see"


def test_the_data_volume_is_where_the_node_writes():
    config = load_config(None, {}, _image_environment() | {ALLOWED: "true"})
    assert _all("VOLUME") == [str(config.data_directory)]
    assert f"data:{config.data_directory}" in COMPOSE["services"]["kafka"]["volumes"]


def test_the_health_check_asks_the_port_that_the_image_sets():
    (check,) = _all("HEALTHCHECK")
    assert "HEADRACE_METRICS_PORT" in check
    assert "/readyz" in check
    config = load_config(None, {}, _image_environment() | {ALLOWED: "true"})
    assert config["headrace.metrics.port"] > 0


def test_the_health_check_is_a_python_program():
    (check,) = _all("HEALTHCHECK")
    python, option, program = json_form(check)
    assert (python, option) == ("python", "-c")
    compile(program, "HEALTHCHECK", "exec")


def test_the_image_alone_serves_clients_on_the_host_when_it_is_allowed():
    (listener,) = load_config(None, {}, _image_environment() | {ALLOWED: "true"}).listeners
    assert (listener.host, listener.port, listener.advertised_host) == ("0.0.0.0", 9092, "localhost")


@pytest.mark.row("D20")
def test_the_compose_file_has_an_outer_and_an_inner_listener():
    config = load_config(None, {}, {**_image_environment(), **_compose_environment()})
    told = {each.name: (each.advertised_host, each.advertised_port) for each in config.listeners}
    assert told == {"OUTSIDE": ("localhost", 9092), "INSIDE": ("kafka", 29092)}
    assert config.notes == ()
    assert "kafka" in COMPOSE["services"], "the inner name must be the service's"
    assert _all("EXPOSE") == [" ".join(str(each.port) for each in config.listeners)]


def test_the_compose_file_publishes_ports_on_this_machine_only():
    published = {name: service["ports"] for name, service in COMPOSE["services"].items()}
    assert published == {"zookeeper": ["127.0.0.1:2181:2181"], "kafka": ["127.0.0.1:9092:9092"]}


@pytest.mark.row("D20")
def test_the_compose_file_is_the_drawn_network():
    """Two containers with these names on one network; the node's coordination is in ZooKeeper."""
    assert list(COMPOSE["networks"]) == ["kafka-network"]
    for name in ("zookeeper", "kafka"):
        service = COMPOSE["services"][name]
        assert (service["container_name"], service["networks"]) == (name, ["kafka-network"])
    config = load_config(None, {}, {**_image_environment(), **_compose_environment()})
    assert config.coordination == ZooKeeperAddress(hosts="zookeeper:2181", root="/headrace")


def test_the_entry_point_is_a_command_of_ours():
    assert _all("ENTRYPOINT") == ['["headrace", "serve", "--from-env"]']


def test_every_tool_has_its_link():
    (links,) = [text for text in _all("RUN") if "ln -s" in text]
    named = re.search(r"for tool in ([^;]+);", links)
    assert named is not None
    assert named[1].split() == list(TOOLS)


# -- docs/containers.md ------------------------------------------------------------------------------------


def _table(title: str) -> list[list[str]]:
    """The rows of the first table after a line that begins so, without its head."""
    rows = re.search(rf"^{re.escape(title)}.*?^\|---.*?\n(.*?)\n\n", DOCUMENT, flags=re.MULTILINE | re.DOTALL)
    assert rows is not None
    return [[cell.strip(" `") for cell in row.strip("|").split(" | ")] for row in rows[1].splitlines()]


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r"\b(?:KAFKA|HEADRACE)(?:_[A-Z0-9]+)+\b(?!_?…)", DOCUMENT)))
)
def test_every_variable_of_the_document_is_a_setting_or_has_a_reason(name: str) -> None:
    if name in REFUSED:
        with pytest.raises(ConfigError, match="without them the node would serve everybody"):
            read_environment({name: "1"})
    else:
        settings, notes = read_environment({name: "1"})
        assert settings or not [note for note in notes if "not settings of Headrace" in note]


def test_the_document_has_the_variables_of_the_image() -> None:
    variables = {name: value for name, value in _image_environment().items() if name != "PATH"}
    assert {row[0]: row[1] for row in _table("## What the image sets")} == variables


def test_the_document_has_the_addresses_of_the_compose_file() -> None:
    config = load_config(None, {}, {**_image_environment(), **_compose_environment()})
    advertised = [f"{each.advertised_host}:{each.advertised_port}" for each in config.listeners]
    assert [row[1] for row in _table("| who | connects to |")] == advertised
    network, volume = COMPOSE["services"]["kafka"]["networks"][0], _all("VOLUME")[0]
    for shown in (f"┌─ {network} ─", f"containers on `{network}`", f"the volume `{volume}`", *advertised):
        assert shown in DOCUMENT


def test_the_document_says_what_a_zookeeper_address_becomes() -> None:
    pairs = re.findall(r"`([^`=]+)` is `(?:HEADRACE_COORDINATION=)?(zk://[^`]+)`", DOCUMENT)
    assert len(pairs) == 2
    for connect, store in pairs:
        image = _image_environment() | {ALLOWED: "true"}
        configs = [
            load_config(None, {}, image | {name: value})
            for name, value in (("KAFKA_ZOOKEEPER_CONNECT", connect), ("HEADRACE_COORDINATION", store))
        ]
        assert configs[0].coordination == configs[1].coordination


@pytest.mark.parametrize(
    "variables",
    [
        {"KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:9093,2@b:9093,3@c:9093"},
        {"KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": "a:9093,b:9093"},
        {"KAFKA_PROCESS_ROLES": "broker"},
        {"KAFKA_CONTROLLER_QUORUM_VOTERS": "2@b:9093", "KAFKA_NODE_ID": "1"},
        {"KAFKA_DEFAULT_REPLICATION_FACTOR": "3"},
        {"KAFKA_MIN_INSYNC_REPLICAS": "2"},
    ],
    ids=lambda variables: next(iter(variables)),
)
def test_one_of_several_nodes_needs_a_shared_store(variables: dict[str, str]) -> None:
    image = _image_environment() | {ALLOWED: "true"}
    with pytest.raises(ConfigError) as refused:
        load_config(None, {}, image | variables)
    if variables.get("KAFKA_CONTROLLER_QUORUM_VOTERS", "").startswith("1@a"):
        assert f"headrace: {refused.value}\n" in DOCUMENT
    load_config(None, {}, image | variables | {"KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181"})


def test_a_controller_alone_is_refused_with_a_shared_store_too() -> None:
    variables = {
        "KAFKA_PROCESS_ROLES": "controller",
        "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
        ALLOWED: "true",
    }
    with pytest.raises(ConfigError, match="remove this container"):
        load_config(None, {}, _image_environment() | variables)


def test_metrics_for_other_containers_need_a_token_or_the_permission() -> None:
    image = _image_environment() | {
        "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:9092",
        "HEADRACE_METRICS_HOST": "0.0.0.0",
    }
    with pytest.raises(ConfigError, match=r"headrace\.metrics\.token\.file"):
        load_config(None, {}, image)
    load_config(None, {}, image | {ALLOWED: "true"})


def test_the_tools_have_the_options_that_the_document_shows(capsys: pytest.CaptureFixture[str]) -> None:
    shell = "\n".join(re.findall(r"```sh\n(.*?)```", DOCUMENT, flags=re.DOTALL)).replace("\\\n", " ")
    commands = re.findall(r"^docker exec (?:-i )?kafka (kafka-\S+) (.*)$", shell, flags=re.MULTILINE)
    assert {tool for tool, _ in commands} == set(TOOLS)
    for tool, arguments in commands:
        run_tool(tool, ["--help"])
        known = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
        assert set(re.findall(r"--[\w-]+", arguments)) <= known, tool


# -- compose files -----------------------------------------------------------------------------------------

TEXT, LIST, MAP = (str,), (list,), (dict, type(None))
TOP = {"services": MAP, "volumes": MAP, "networks": MAP}
SERVICE = {
    **dict.fromkeys(
        ("build", "image", "container_name", "restart", "network_mode", "stop_grace_period"), TEXT
    ),
    **dict.fromkeys(("ports", "volumes", "networks", "depends_on"), LIST),
    "environment": (dict,),
}
"""The part of the compose specification that the files use: keys and the types of their values."""
RESTART = ("no", "always", "on-failure", "unless-stopped")


@pytest.mark.parametrize("path", COMPOSE_FILES, ids=lambda path: path.name)
def test_compose_files_are_as_the_specification_has_them(path):
    document = yaml.safe_load(path.read_text())
    _check_types(document, TOP, path.name)
    for name, service in document["services"].items():
        _check_types(service, SERVICE, name)
        assert "image" in service, name
        assert service.get("restart", "no") in RESTART
        assert all(isinstance(value, str) for value in service.get("environment", {}).values()), name
        assert set(service.get("depends_on", ())) <= document["services"].keys()
        assert set(service.get("networks", ())) <= (document.get("networks") or {}).keys()
        named = {volume.partition(":")[0] for volume in service.get("volumes", ())}
        assert named <= (document.get("volumes") or {}).keys()
        assert not ("network_mode" in service and "networks" in service), "one or the other"


def _check_types(mapping, allowed, where):
    for key, value in mapping.items():
        assert key in allowed, f"{where}: {key}"
        assert isinstance(value, allowed[key]), f"{where}: {key}: {value!r}"
