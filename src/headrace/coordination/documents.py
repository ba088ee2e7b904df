# SPDX-License-Identifier: Apache-2.0
"""The keys of the store and the JSON document behind each; every document carries its `format`.

Pure encoding and decoding. Why these keys: docs/decisions/0002-coordination-keys.md.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from headrace.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from headrace.client_quotas import DEFAULT, QuotaEntity
from headrace.errors import CoordinationError, newer_format
from headrace.scram_credential import ScramCredential, UserCredentials
from headrace.types import Endpoint, FinalizedFeatures, Move, Node, PartitionState, Topic

FORMAT = 1

CLUSTER = "/cluster"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
PRODUCER_IDS = "/producer_ids"
NODE_SECRET = "/security/node_secret"
NODE_LOGIN = "/security/node_login"
FEATURES = "/features"
TRANSACTION_VERSION = "transaction.version"
"""Apache Kafka's name of the feature (KIP-890), in documents and in the ApiVersions reply."""
_NO_TRANSACTIONS = (0, 0)
_NODES = "/nodes/"
_ADMISSIONS = "/admissions/"
_TOPICS = "/topics/"
_NODE_CONFIGS = "/configs/nodes/"
_GROUP_CONFIGS = "/configs/groups/"
_USERS = "/users/"
_ACLS = "/acls/"
_QUOTAS = "/quotas/"
_QUOTA_FIELDS = {
    "users": ("user",),
    "clients": ("client_id",),
    "user-clients": ("user", "client_id"),
    "ips": ("ip",),
}
_DEFAULT_ENTITY = ".default"
"""Key part for the default of users, client ids or addresses; no escaped name has a dot."""
_DEFAULT_NODE = "default"
"""Key part for "all nodes", which a ClusterView has under the empty name."""


def node_key(node_id: int) -> str:
    return f"{_NODES}{node_id}"


def admission_key(node_id: int) -> str:
    return f"{_ADMISSIONS}{node_id}"


def topic_key(name: str) -> str:
    return _TOPICS + name


def node_configs_key(node: str) -> str:
    return _NODE_CONFIGS + (node or _DEFAULT_NODE)


def group_configs_key(group_id: str) -> str:
    return _GROUP_CONFIGS + _escaped(group_id)


def quotas_key(entity: QuotaEntity) -> str:
    for folder, fields in _QUOTA_FIELDS.items():
        names = [getattr(entity, field) for field in fields]
        if None not in names and entity == QuotaEntity(**dict(zip(fields, names, strict=True))):
            parts = [_DEFAULT_ENTITY if name == DEFAULT else _escaped(name) for name in names]
            return f"{_QUOTAS}{folder}/{'/'.join(parts)}"
    raise ValueError(f"no quotas can be set for {entity!r}")


def user_key(name: str) -> str:
    return _USERS + _escaped(name)


def _escaped(name: str) -> str:
    """Percent-encoded with _ for %: a name may have characters that a key must not have."""
    quoted = quote(name, safe="").replace("_", "%5F").replace(".", "%2E").replace("~", "%7E")
    return quoted.replace("%", "_")


def _unescaped(part: str) -> str:
    return unquote(part.replace("_", "%"))


def acl_key(acl: AclBinding) -> str:
    """One entry for each ACL, named by all its fields: writing it again changes nothing (S10)."""
    return _ACLS + hashlib.sha256(json.dumps(acl).encode()).hexdigest()


def is_acl_key(key: str) -> bool:
    return key.startswith(_ACLS)


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
    return _unescaped(key.removeprefix(_GROUP_CONFIGS)) if key.startswith(_GROUP_CONFIGS) else None


def user_of_key(key: str) -> str | None:
    return _unescaped(key.removeprefix(_USERS)) if key.startswith(_USERS) else None


def quota_entity_of_key(key: str) -> QuotaEntity | None:
    if not key.startswith(_QUOTAS):
        return None
    folder, *parts = key.removeprefix(_QUOTAS).split("/")
    names = [DEFAULT if part == _DEFAULT_ENTITY else _unescaped(part) for part in parts]
    return QuotaEntity(**dict(zip(_QUOTA_FIELDS[folder], names, strict=True)))


def encode(**fields: Any) -> bytes:
    return json.dumps({"format": FORMAT, **fields}, separators=(",", ":")).encode()


def decode(key: str, value: bytes) -> dict[str, Any]:
    try:
        document = json.loads(value)
        found = int(document["format"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise CoordinationError(f"the coordination entry {key} is not a Headrace document") from error
    if found > FORMAT:
        raise CoordinationError(newer_format(f"the coordination entry {key}", found, FORMAT))
    return dict(document)


class RegisteredNode(NamedTuple):
    node: Node
    waits: bool
    """It is live once the controller admits it (R20); otherwise at once."""


class Admission(NamedTuple):
    """Whether the controller admitted or fenced one incarnation of a node.

    A separate entry that is never removed, so that its version cannot refer to two incarnations.
    """

    epoch: int
    fenced: bool


def encode_node(node: Node, *, waits: bool = False) -> bytes:
    """Encodes no epoch: it is the store version at which the entry was created (R3)."""
    unusual: dict[str, Any] = {}
    if waits:
        unusual["waits"] = True
    if node.directory_id:
        unusual["directory_id"] = node.directory_id
    if not node.lossless:
        unusual["lossless"] = False
    flags = {"new_disk": node.new_disk, "leaving": node.leaving, "full": node.full, "logs_in": node.logs_in}
    unusual |= {name: True for name, holds in flags.items() if holds}
    if node.transaction_versions != _NO_TRANSACTIONS:
        unusual["features"] = {TRANSACTION_VERSION: node.transaction_versions}
    if node.session_ms:
        unusual["session_ms"] = node.session_ms
    if node.offline:
        unusual["offline"] = sorted([topic_id.hex, index] for topic_id, index in node.offline)
    if node.offline_epochs:
        entries = sorted((topic_id.hex, index, epoch) for topic_id, index, epoch in node.offline_epochs)
        unusual["offline_epochs"] = entries
    if node.slow:
        unusual["slow"] = sorted(node.slow)
    return encode(
        host_id=node.host_id,
        hostname=node.hostname,
        rack=node.rack,
        endpoints=[{"listener": e.listener, "host": e.host, "port": e.port} for e in node.endpoints],
        **unusual,
    )


def decode_node(key: str, value: bytes, node_id: int, epoch: int) -> RegisteredNode:
    document = decode(key, value)
    lowest, highest = document.get("features", {}).get(TRANSACTION_VERSION, _NO_TRANSACTIONS)
    node = Node(
        node_id=node_id,
        epoch=epoch,
        host_id=document["host_id"],
        hostname=document["hostname"],
        rack=document["rack"],
        endpoints=tuple(Endpoint(**endpoint) for endpoint in document["endpoints"]),
        directory_id=document.get("directory_id", ""),
        lossless=document.get("lossless", True),
        new_disk=document.get("new_disk", False),
        leaving=document.get("leaving", False),
        full=document.get("full", False),
        logs_in=document.get("logs_in", False),
        session_ms=int(document.get("session_ms", 0)),
        offline=frozenset((uuid.UUID(hex), index) for hex, index in document.get("offline", ())),
        offline_epochs=frozenset(
            (uuid.UUID(hex), int(index), int(epoch))
            for hex, index, epoch in document.get("offline_epochs", ())
        ),
        slow=frozenset(map(int, document.get("slow", ()))),
        transaction_versions=(int(lowest), int(highest)),
    )
    return RegisteredNode(node, document.get("waits", False))


def encode_features(features: FinalizedFeatures) -> bytes:
    return encode(epoch=features.epoch, levels=dict(features.levels))


def decode_features(key: str, value: bytes) -> FinalizedFeatures:
    document = decode(key, value)
    levels = {str(name): int(level) for name, level in document["levels"].items()}
    return FinalizedFeatures(epoch=int(document["epoch"]), levels=levels)


def encode_secret(secret: bytes) -> bytes:
    return encode(secret=base64.b64encode(secret).decode())


def decode_secret(key: str, value: bytes) -> bytes:
    return base64.b64decode(decode(key, value)["secret"])


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


def encode_user(credentials: UserCredentials) -> bytes:
    return encode(
        credentials={
            mechanism: {
                "salt": base64.b64encode(credential.salt).decode(),
                "iterations": credential.iterations,
                "stored_key": base64.b64encode(credential.stored_key).decode(),
                "server_key": base64.b64encode(credential.server_key).decode(),
            }
            for mechanism, credential in credentials.items()
        }
    )


def decode_user(key: str, value: bytes) -> UserCredentials:
    return {
        mechanism: ScramCredential(
            salt=base64.b64decode(fields["salt"]),
            iterations=fields["iterations"],
            stored_key=base64.b64decode(fields["stored_key"]),
            server_key=base64.b64decode(fields["server_key"]),
        )
        for mechanism, fields in decode(key, value)["credentials"].items()
    }


def encode_acl(acl: AclBinding) -> bytes:
    return encode(**acl._asdict())


def decode_acl(key: str, value: bytes) -> AclBinding:
    document = decode(key, value)
    return AclBinding(
        resource_type=ResourceType(document["resource_type"]),
        resource_name=document["resource_name"],
        pattern_type=PatternType(document["pattern_type"]),
        principal=document["principal"],
        host=document["host"],
        operation=Operation(document["operation"]),
        permission=Permission(document["permission"]),
    )


def encode_quotas(quotas: Mapping[str, float]) -> bytes:
    return encode(quotas=dict(quotas))


def decode_quotas(key: str, value: bytes) -> dict[str, float]:
    return {name: float(bound) for name, bound in decode(key, value)["quotas"].items()}


def _encode_partition(partition: PartitionState) -> dict[str, Any]:
    """Default values are omitted: a topic with thousands of partitions must fit into one entry."""
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
