# SPDX-License-Identifier: Apache-2.0
"""View `clients` (`q`): who is connected, with which software, and what last went wrong.

    told: whether this cluster tells its connections (Headrace: config `headrace.clients` of each node)
    nodes: [{id, clients, problem}]
    software: [{name, version, clients}]       most first
    total (that match), more (connections that a node left out),
    clients: [{node, principal, client_id, software, version, host, port, listener, since, requests,
               apis: [{name, count}] (most first), last_error: {api, error, at} | null, groups: [ids]}]
        those with an error first, at most 500
    members_total, members: [{group, client_id, host, member_id, instance_id, partitions}]
        from the groups: what any Kafka cluster tells; at most 500

null means that the node does not say it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator

from headrace.client.errors import ClientError
from headrace.console.state.model import MemberState, Snapshot
from headrace.console.views.admin.config_requests import node_settings
from headrace.console.views.admin.connected_clients import CLIENTS, ConnectedClient, read_clients
from headrace.console.views.admin_document import command, document, matching
from headrace.console.views.view import Document, Params, Source, View

_REFRESH_S = 5.0
_MOST = 500
_NOT_TOLD = (
    "this cluster does not tell its connections (Apache Kafka has no request for it); "
    "the members of groups are all that is known"
)


async def build(source: Source, snapshot: Snapshot, params: Params) -> Document:
    up = sorted(node.node_id for node in snapshot.nodes.values() if node.up)
    answers = await asyncio.gather(*(_of_node(source, node_id) for node_id in up))
    told = any(clients is not None for _, clients, _, _ in answers)
    wanted = params.get("q", "")
    groups = _groups_by_client(snapshot)
    found = [
        (node_id, client)
        for node_id, clients, _, _ in answers
        for client in clients or ()
        if matching(wanted, client.principal, client.client_id, client.host, client.software)
    ]
    found.sort(key=lambda each: (each[1].last_error is None, each[1].client_id or "", each[1].host or ""))
    members = [
        each for each in _members(snapshot) if matching(wanted, *each[:1], each[1].client_id, each[1].host)
    ]
    parts: Document = {
        "told": told,
        "nodes": [
            {"id": node_id, "clients": None if clients is None else len(clients) + more, "problem": problem}
            for node_id, clients, more, problem in answers
        ],
        "software": _software([client for _, client in found]),
        "total": len(found),
        "more": sum(more for _, _, more, _ in answers),
        "clients": [_client(node_id, client, groups) for node_id, client in found[:_MOST]],
        "members_total": len(members),
        "members": [_member(group, member) for group, member in members[:_MOST]],
    }
    commands = [command("Members of a group", "groups", "describe", "GROUP")]
    unknown = () if told else (_NOT_TOLD,)
    return document("clients", snapshot, parts, unknown=unknown, commands=commands)


async def _of_node(source: Source, node_id: int) -> tuple[int, list[ConnectedClient] | None, int, str | None]:
    """Its clients (None: it does not tell), those it left out, and why it did not answer."""
    try:
        settings = await node_settings(source.network, node_id, [CLIENTS])
    except ClientError as error:
        return node_id, None, 0, str(error)
    pieces = [setting.value for setting in settings if setting.name.startswith(f"{CLIENTS}.")]
    if not pieces:
        return node_id, None, 0, None
    clients, more = read_clients(pieces)
    return node_id, clients, more, None


def _members(snapshot: Snapshot) -> Iterator[tuple[str, MemberState]]:
    for group_id in sorted(snapshot.groups):
        for member in snapshot.groups[group_id].members:
            yield group_id, member


def _groups_by_client(snapshot: Snapshot) -> dict[tuple[str, str], set[str]]:
    """By client id and host: a member is one of the connections that have both."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for group_id, member in _members(snapshot):
        found[member.client_id, _bare(member.host)].add(group_id)
    return found


def _bare(host: str) -> str:
    """Groups have Java's form of an address: /127.0.0.1."""
    return host.removeprefix("/")


def _software(clients: list[ConnectedClient]) -> list[Document]:
    counted = Counter((client.software, client.version) for client in clients)
    ranked = sorted(counted.items(), key=lambda each: (-each[1], str(each[0])))
    return [{"name": name, "version": version, "clients": count} for (name, version), count in ranked]


def _client(node_id: int, client: ConnectedClient, groups: dict[tuple[str, str], set[str]]) -> Document:
    of_client = groups.get((client.client_id or "", _bare(client.host or "")), set())
    return {
        "node": node_id,
        "principal": client.principal,
        "client_id": client.client_id,
        "software": client.software,
        "version": client.version,
        "host": client.host,
        "port": client.port,
        "listener": client.listener,
        "since": client.since_ms,
        "requests": sum(client.requests.values()) if client.requests else None,
        "apis": [
            {"name": name, "count": count}
            for name, count in sorted(client.requests.items(), key=lambda each: -each[1])
        ],
        "last_error": client.last_error,
        "groups": sorted(of_client),
    }


def _member(group_id: str, member: MemberState) -> Document:
    return {
        "group": group_id,
        "client_id": member.client_id,
        "host": _bare(member.host),
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "partitions": len(member.assigned),
    }


VIEW = View(name="clients", build=build, refresh_s=_REFRESH_S)
