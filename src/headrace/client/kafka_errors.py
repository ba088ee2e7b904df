# SPDX-License-Identifier: Apache-2.0
"""Kafka's error codes in words, each with the next command to try. Pure.

Takes the name and text of a confluent-kafka error, so that nothing here needs that library.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.client.bootstrap import START_ONE
from headrace.client.errors import ClientError, NextStep


class _Words(NamedTuple):
    what: str | None
    """None: the broker's text is used."""
    next_step: str | None


_WORDS: dict[str, _Words] = {
    "UNKNOWN_TOPIC_OR_PART": _Words("{subject} does not exist", "list the topics: headrace topics list"),
    "UNKNOWN_TOPIC_ID": _Words("{subject} was deleted meanwhile", "list the topics: headrace topics list"),
    "TOPIC_ALREADY_EXISTS": _Words("{subject} exists already", "look at it: headrace topics describe {name}"),
    "TOPIC_EXCEPTION": _Words(
        "{name!r} cannot be a topic's name",
        "use up to 249 letters, digits, dots, underscores and hyphens",
    ),
    "INVALID_TOPIC_EXCEPTION": _Words(
        "{name!r} cannot be a topic's name",
        "use up to 249 letters, digits, dots, underscores and hyphens",
    ),
    "INVALID_PARTITIONS": _Words(
        None, "give at least 1; later, partitions can be added (headrace topics alter) but never removed"
    ),
    "INVALID_REPLICATION_FACTOR": _Words(
        None,
        NextStep(
            "give a replication_factor up to the number of nodes, or leave it out",
            "give a --replication-factor up to the number of nodes, or leave it out",
        ),
    ),
    "INVALID_CONFIG": _Words(None, "see the settings there are: headrace configs get --topic TOPIC --all"),
    "TOPIC_DELETION_DISABLED": _Words("the broker does not allow topics to be deleted", None),
    "TOPIC_AUTHORIZATION_FAILED": _Words(
        "no ACL allows you to do this to {subject}",
        "an operator adds one: headrace acls add --topic {name} --principal User:NAME --operation OPERATION",
    ),
    "CLUSTER_AUTHORIZATION_FAILED": _Words(
        "no ACL allows you to do this to the cluster",
        "an operator adds one: headrace acls add --cluster --principal User:NAME --operation OPERATION",
    ),
    "MSG_SIZE_TOO_LARGE": _Words(
        "the record is larger than {subject} takes",
        "raise it: headrace configs set --topic {name} max.message.bytes=BYTES",
    ),
    "INVALID_RECORD": _Words(
        "{subject} refused the record", "see what it asks of records: headrace configs get --topic {name}"
    ),
    "OFFSET_OUT_OF_RANGE": _Words(
        "{subject} does not hold that offset", "see which it holds: headrace topics describe {name}"
    ),
    "NOT_ENOUGH_REPLICAS": _Words(
        "{subject} has too few in-sync replicas for acks=all",
        "see which nodes are missing: headrace topics describe {name}",
    ),
    "LEADER_NOT_AVAILABLE": _Words(
        "{subject} has no leader just now", "see its replicas: headrace topics describe {name}"
    ),
    "UNSUPPORTED_VERSION": _Words("the broker is too old (or too new) for this request", None),
    "GROUP_ID_NOT_FOUND": _Words("{subject} does not exist", "list the groups: headrace groups list"),
    "NON_EMPTY_GROUP": _Words(
        "{subject} has members",
        "stop its consumers first; see who they are: headrace groups describe {name}",
    ),
    "UNKNOWN_MEMBER_ID": _Words(
        "{subject} has members, and only they may commit for it",
        "stop its consumers first; see who they are: headrace groups describe {name}",
    ),
    "GROUP_SUBSCRIBED_TO_TOPIC": _Words(
        "members of {subject} are subscribed to the topic",
        "stop its consumers first; see who they are: headrace groups describe {name}",
    ),
    "INVALID_GROUP_ID": _Words("{name!r} cannot be a group's name", "list the groups: headrace groups list"),
    "GROUP_AUTHORIZATION_FAILED": _Words(
        "no ACL allows you to do this to {subject}",
        "an operator adds one: headrace acls add --group {name} --principal User:NAME --operation read",
    ),
    "TRANSACTIONAL_ID_NOT_FOUND": _Words(
        "no coordinator knows {subject}", "list those there are: headrace transactions list"
    ),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": _Words(
        "no ACL allows you to do this to {subject}",
        "an operator adds one: "
        "headrace acls add --transactional-id {name} --principal User:NAME --operation OPERATION",
    ),
    "CONCURRENT_TRANSACTIONS": _Words(
        "a transaction of {subject} is still being ended",
        "see whose markers are missing: headrace transactions describe --id {name}",
    ),
    "COORDINATOR_NOT_AVAILABLE": _Words(
        "the coordinator of {subject} is not ready", "try again in a few seconds"
    ),
    "COORDINATOR_LOAD_IN_PROGRESS": _Words(
        "the coordinator of {subject} is still reading its log", "try again in a few seconds"
    ),
    "_UNKNOWN_PARTITION": _Words(
        "{subject} has no such partition", "see which it has: headrace topics describe {name}"
    ),
    "_UNKNOWN_TOPIC": _Words("{subject} does not exist", "list the topics: headrace topics list"),
    "_TRANSPORT": _Words("the connection to the broker was lost", START_ONE),
    "_ALL_BROKERS_DOWN": _Words("no broker can be reached", START_ONE),
    "_RESOLVE": _Words(
        "a broker's host name cannot be resolved",
        NextStep("check bootstrap=", "check --bootstrap"),
    ),
    "_TIMED_OUT": _Words("the broker did not answer in time", "check that it runs and try again"),
    "_MSG_TIMED_OUT": _Words(
        "no broker took the record in time", "check the node and its disk, then send it again"
    ),
}


_QUOTED = ("topic", "group", "transactional id")


def client_error(error: Any, *, name: str, kind: str = "topic") -> ClientError:
    """`error` is a KafkaError, or the KafkaException that carries one; `name` is what it is about."""
    error = error.args[0] if isinstance(error, Exception) and error.args else error
    code = str(error.name())
    text = str(error.str() or code).removeprefix("Broker: ").removeprefix("Local: ").rstrip(".")
    return code_error(code, name=name, kind=kind, text=text)


def code_error(code: str, *, name: str, kind: str = "topic", text: str | None = None) -> ClientError:
    """As `client_error`, where only Kafka's name of the code is known."""
    words = _WORDS.get(code, _Words(None, None))
    subject = f"{kind} {name!r}" if kind in _QUOTED else f"{kind} {name}".rstrip()
    what = words.what.format(subject=subject, name=name) if words.what else f"{subject}: {text or code}"
    next_step = words.next_step
    if next_step is not None and not isinstance(next_step, NextStep):
        next_step = next_step.format(name=name)
    return ClientError(what, next_step=next_step, code=code)
