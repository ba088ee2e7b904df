"""The keys of the store and the JSON document behind each; every document carries its `format`.

Values in, bytes out, and back: no store, no IO. Why these keys: docs/decisions/0002-coordination-keys.md.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from headrace.errors import CoordinationError
from headrace.types import Endpoint, Move, Node, PartitionState, Topic

FORMAT = 1

CLUSTER = "/cluster"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
PRODUCER_IDS = "/producer_ids"
_NODES = "/nodes/"
_ADMISSIONS = "/admissions/"
_TOPICS = "/topics/"
_NODE_CONFIGS = "/configs/nodes/"
_GROUP_CONFIGS = "/configs/groups/"
_DEFAULT_NODE = "default"
"""Stands for "every node", which a ClusterView keeps under the empty name."""


def node_key(node_id: int) -> str:
    return f"{_NODES}{node_id}"


def admission_key(node_id: int) -> str:
    return f"{_ADMISSIONS}{node_id}"


def topic_key(name: str) -> str:
    return _TOPICS + name


def node_configs_key(node: str) -> str:
    return _NODE_CONFIGS + (node or _DEFAULT_NODE)


def group_configs_key(group_id: str) -> str:
    """A group id may hold anything, a key may not: percent-encoded, with _ for %."""
    quoted = quote(group_id, safe="").replace("_", "%5F").replace(".", "%2E").replace("~", "%7E")
    return _GROUP_CONFIGS + quoted.replace("%", "_")


def node_of_key(key: str) -> int | None:
    return int(key.removeprefix(_NODES)) if key.startswith(_NODES) else None


def admitted_node_of_key(key: str) -> int | None:
    return int(key.removeprefix(_ADMISSIONS)) if key.startswith(_ADMISSIONS) else None


def topic_of_key(key: str) -> str | None:
    return key.removeprefix(_TOPICS) if key.startswith(_TOPICS) else None


def configured_node_of_key(key: str) -> str | None:
    if not key.startswith(_NODE_CONFIGS):
        return None
    node = key.removeprefix(_NODE_CONFIGS)
    return "" if node == _DEFAULT_NODE else node


def configured_group_of_key(key: str) -> str | None:
    if not key.startswith(_GROUP_CONFIGS):
        return None
    return unquote(key.removeprefix(_GROUP_CONFIGS).replace("_", "%"))


def encode(**fields: Any) -> bytes:
    return json.dumps({"format": FORMAT, **fields}, separators=(",", ":")).encode()


def decode(key: str, value: bytes) -> dict[str, Any]:
    try:
        document = json.loads(value)
        found = int(document["format"])
    except (ValueError, TypeError, KeyError) as error:
        raise CoordinationError(f"the coordination entry {key} is not a Headrace document") from error
    if found > FORMAT:
        raise CoordinationError(f"the coordination entry {key} has format {found}; upgrade this node first")
    return dict(document)


class RegisteredNode(NamedTuple):
    node: Node
    waits: bool
    """It is live from when the controller says so (R20); otherwise at once."""


class Admission(NamedTuple):
    """The controller's word on one incarnation of a node: let in, or given up.

    Beside the node's own entry and never removed, so that its version cannot stand for two incarnations.
    """

    epoch: int
    fenced: bool


def encode_node(node: Node, *, waits: bool = False) -> bytes:
    """Without the epoch: that is the version at which the store made the entry (R3)."""
    unusual: dict[str, Any] = {}
    if waits:
        unusual["waits"] = True
    if node.directory_id:
        unusual["directory_id"] = node.directory_id
    if not node.lossless:
        unusual["lossless"] = False
    if node.leaving:
        unusual["leaving"] = True
    if node.full:
        unusual["full"] = True
    if node.offline:
        unusual["offline"] = sorted([topic_id.hex, index] for topic_id, index in node.offline)
    return encode(
        host_id=node.host_id,
        hostname=node.hostname,
        rack=node.rack,
        endpoints=[{"listener": e.listener, "host": e.host, "port": e.port} for e in node.endpoints],
        **unusual,
    )


def decode_node(key: str, value: bytes, node_id: int, epoch: int) -> RegisteredNode:
    document = decode(key, value)
    node = Node(
        node_id=node_id,
        epoch=epoch,
        host_id=document["host_id"],
        hostname=document["hostname"],
        rack=document["rack"],
        endpoints=tuple(Endpoint(**endpoint) for endpoint in document["endpoints"]),
        directory_id=document.get("directory_id", ""),
        lossless=document.get("lossless", True),
        leaving=document.get("leaving", False),
        full=document.get("full", False),
        offline=frozenset((uuid.UUID(hex), index) for hex, index in document.get("offline", ())),
    )
    return RegisteredNode(node, document.get("waits", False))


def encode_admission(admission: Admission) -> bytes:
    return encode(epoch=admission.epoch, fenced=admission.fenced)


def decode_admission(key: str, value: bytes) -> Admission:
    document = decode(key, value)
    return Admission(document["epoch"], document["fenced"])


def encode_topic(topic: Topic) -> bytes:
    moves = {str(index): {"original": m.original, "target": m.target} for index, m in topic.moves.items()}
    return encode(
        id=str(topic.topic_id),
        configs=dict(topic.configs),
        partitions=[_encode_partition(partition) for partition in topic.partitions],
        **({"moves": moves} if moves else {}),
    )


def decode_topic(key: str, value: bytes, name: str) -> Topic:
    document = decode(key, value)
    return Topic(
        name=name,
        topic_id=uuid.UUID(document["id"]),
        configs=document["configs"],
        partitions=tuple(_decode_partition(partition) for partition in document["partitions"]),
        moves={
            int(index): Move(original=tuple(move["original"]), target=tuple(move["target"]))
            for index, move in document.get("moves", {}).items()
        },
    )


def encode_configs(configs: Mapping[str, str]) -> bytes:
    return encode(configs=dict(configs))


def _encode_partition(partition: PartitionState) -> dict[str, Any]:
    """What has its usual value is left out: a topic of thousands of partitions must fit one entry."""
    document: dict[str, Any] = {
        "replicas": partition.replicas,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "controller_epoch": partition.controller_epoch,
    }
    if partition.isr != partition.replicas:
        document["isr"] = partition.isr
    if partition.elr:
        document["elr"] = partition.elr
    if partition.last_known_elr:
        document["last_known_elr"] = partition.last_known_elr
    return document


def _decode_partition(document: Mapping[str, Any]) -> PartitionState:
    replicas = tuple(document["replicas"])
    return PartitionState(
        replicas=replicas,
        leader=document["leader"],
        leader_epoch=document["leader_epoch"],
        partition_epoch=document["partition_epoch"],
        controller_epoch=document["controller_epoch"],
        isr=tuple(document.get("isr", replicas)),
        elr=tuple(document.get("elr", ())),
        last_known_elr=tuple(document.get("last_known_elr", ())),
    )
