# SPDX-License-Identifier: Apache-2.0
"""The manifests of deploy/kubernetes fit together, and make the nodes of one cluster."""

from __future__ import annotations

import copy
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from headrace.config import NodeConfig, load_config
from headrace.config.coordination_address import ZooKeeperAddress
from tests.harness.left_out import leave_out
from tests.harness.live.clean_root import read_dockerfile

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
MANIFESTS = [
    manifest
    for name in KUSTOMIZATION["resources"]
    for manifest in yaml.safe_load_all((FOLDER / name).read_text())
]
NAMES = ("headrace", "zookeeper")


def _one(kind: str, name: str) -> dict[str, Any]:
    (found,) = (each for each in MANIFESTS if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def _services(name: str) -> list[dict[str, Any]]:
    services = (each for each in MANIFESTS if each["kind"] == "Service")
    return [service for service in services if service["metadata"]["name"].startswith(name)]


def _pod(name: str) -> dict[str, Any]:
    return _one("StatefulSet", name)["spec"]["template"]["spec"]


def _container(name: str) -> dict[str, Any]:
    (container,) = _pod(name)["containers"]
    return container


def _ordinals(name: str) -> list[int]:
    spec = _one("StatefulSet", name)["spec"]
    start = spec.get("ordinals", {}).get("start", 0)
    return list(range(start, start + spec["replicas"]))


def _environment(name: str, ordinal: int) -> dict[str, str]:
    """The variables of one pod, as Kubernetes sets them in the order of the list."""
    fields = {
        "metadata.name": f"{name}-{ordinal}",
        "metadata.namespace": "streams",
        "metadata.labels['apps.kubernetes.io/pod-index']": str(ordinal),
    }
    found: dict[str, str] = {}
    for variable in _container(name)["env"]:
        if "valueFrom" in variable:
            found[variable["name"]] = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            found[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda match: found[match[1]], variable["value"])
    return found


def _nodes() -> list[NodeConfig]:
    pods = [_environment("headrace", ordinal) for ordinal in _ordinals("headrace")]
    return [load_config(None, {}, _of_the_image() | variables) for variables in pods]


def _of_the_image() -> dict[str, str]:
    """The variables that the Dockerfile sets in its last stage."""
    texts = [step.text for step in read_dockerfile((ROOT / "Dockerfile").read_text()) if step.name == "ENV"]
    return dict(pair.split("=", 1) for pair in shlex.split(texts[-1]))


def test_every_file_of_the_folder_is_used() -> None:
    used = {*KUSTOMIZATION["resources"], "kustomization.yaml"}
    assert used == {file.name for file in FOLDER.iterdir()}
    assert [image["name"] for image in KUSTOMIZATION["images"]] == [_container("headrace")["image"]]


@pytest.mark.parametrize("name", NAMES)
def test_selectors_select_the_pods(name: str) -> None:
    stateful_set = _one("StatefulSet", name)["spec"]
    labels = stateful_set["template"]["metadata"]["labels"]
    (rule,) = _pod(name)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert stateful_set["selector"]["matchLabels"] == labels
    assert _one("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"] == labels
    assert rule["labelSelector"]["matchLabels"] == labels
    assert _services(name)
    for service in _services(name):
        assert service["spec"]["selector"] == labels


@pytest.mark.parametrize("name", NAMES)
def test_pods_have_names_of_a_headless_service_before_they_are_ready(name: str) -> None:
    service = _one("Service", _one("StatefulSet", name)["spec"]["serviceName"])["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True


def test_services_and_probes_use_ports_that_the_containers_have() -> None:
    for name in NAMES:
        container = _container(name)
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        for service in _services(name):
            offered = {port["name"]: port["port"] for port in service["spec"]["ports"]}
            assert offered.items() <= ports.items()
        for probe in (value for key, value in container.items() if key.endswith("Probe")):
            assert (probe.get("httpGet") or probe["tcpSocket"])["port"] in ports


def test_nodes_listen_where_the_container_says() -> None:
    ports = {port["name"]: port["containerPort"] for port in _container("headrace")["ports"]}
    for config in _nodes():
        assert [listener.port for listener in config.listeners] == [ports["kafka"]]
        assert config["headrace.metrics.port"] == ports["metrics"]
        assert config["headrace.metrics.host"] == "0.0.0.0", "probes come from outside the pod"


def test_variables_make_three_nodes_of_one_cluster() -> None:
    nodes = _nodes()
    assert [config["node.id"] for config in nodes] == _ordinals("headrace")
    assert len({config.coordination for config in nodes}) == 1
    assert nodes[0]["default.replication.factor"] == len(nodes)
    assert nodes[0]["min.insync.replicas"] == len(nodes) - 1
    for config in nodes:
        assert not [note for note in config.notes if "ignored" in note], "every variable is a setting"
    advertised = [config.listeners[0].advertised_host for config in nodes]
    assert advertised == [f"headrace-{ordinal}.headrace.streams.svc" for ordinal in _ordinals("headrace")]


def test_nodes_reach_every_server_of_the_ensemble() -> None:
    servers = {f"zookeeper-{ordinal}.zookeeper" for ordinal in _ordinals("zookeeper")}
    coordination = _nodes()[0].coordination
    assert isinstance(coordination, ZooKeeperAddress)
    assert {host.removesuffix(":2181") for host in coordination.hosts.split(",")} == servers
    listed = dict(re.findall(r"server\.(\d+)=([\w.-]+):", _environment("zookeeper", 1)["ZOO_SERVERS"]))
    assert listed == {str(n): f"zookeeper-{n}.zookeeper" for n in _ordinals("zookeeper")}


def test_zookeeper_grants_the_sessions_that_nodes_ask_for() -> None:
    extra = _environment("zookeeper", 1)["ZOO_CFG_EXTRA"]
    shortest = int(re.search(r"minSessionTimeout=(\d+)", extra)[1])  # type: ignore[index]
    assert shortest <= _nodes()[0]["broker.session.timeout.ms"]


@pytest.mark.parametrize("name", NAMES)
def test_pods_have_no_privilege(name: str) -> None:
    pod, container = _pod(name), _container(name)["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container["allowPrivilegeEscalation"] is False
    assert container["capabilities"] == {"drop": ["ALL"]}


def test_the_node_writes_to_its_volume_as_the_user_of_the_image() -> None:
    mounts = {mount["name"]: mount["mountPath"] for mount in _container("headrace")["volumeMounts"]}
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert f"VOLUME {mounts['data']}" in dockerfile
    assert f"--uid {_pod('headrace')['securityContext']['runAsUser']} " in dockerfile
    for config in _nodes():
        assert config.data_directory.parent == Path(mounts["data"])
    claims = _one("StatefulSet", "headrace")["spec"]["volumeClaimTemplates"]
    claimed = {claim["metadata"]["name"] for claim in claims}
    assert claimed | {volume["name"] for volume in _pod("headrace")["volumes"]} == set(mounts)


def test_probes_ask_paths_that_nodes_answer() -> None:
    source = (ROOT / "src" / "headrace" / "broker" / "reporting" / "http_endpoint.py").read_text()
    container = _container("headrace")
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert f'path == "{container[probe]["httpGet"]["path"]}"' in source


def test_services_set_no_variables_of_nodes() -> None:
    assert _pod("headrace")["enableServiceLinks"] is False


@pytest.mark.parametrize("version", ["1.32", "1.37"])
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_a_manifest_is_as_the_schema_of_kubernetes_has_it(manifest: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [("replica", 3), ("replicas", "three"), ("ordinals", {"begin": 1}), ("template", {"spec": {}})],
)
def test_the_schema_refuses_a_mistake(key: str, value: Any) -> None:
    manifest = copy.deepcopy(_one("StatefulSet", "headrace"))
    manifest["spec"][key] = value
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, "1.32", strict=True)


def test_kubectl_renders_the_folder() -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        leave_out("kubectl kustomize", "kubectl is not installed")
    command = [kubectl, "kustomize", str(FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    rendered = [(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(done.stdout)]
    assert sorted(rendered) == sorted((each["kind"], each["metadata"]["name"]) for each in MANIFESTS)
