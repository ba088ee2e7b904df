# SPDX-License-Identifier: Apache-2.0
"""View `acls` (`q`, `limit`): who may do what, from where, on which resources.

    answer: {state: "ok"|"off"|"refused"|"failed", text, next}       why there are none, and what to do
    total (that match), acls: [{resource_type, resource_name, pattern: "literal"|"prefixed", principal, host,
                                operation, permission: "allow"|"deny", remove (command) | null}]
        by resource, at most `limit` (1,000)

Names of types, patterns and operations are those of `headrace acls`.
"""

from __future__ import annotations

import shlex

from headrace.acls import AclBinding, AclFilter, PatternType, Permission, ResourceType
from headrace.client.tools.acls import list_acls
from headrace.console.state.model import Snapshot
from headrace.console.views.admin_document import asked, bounded_int, command, document, matching
from headrace.console.views.view import Document, Params, Source, View

_MOST = 1_000
_REFRESH_S = 10.0
_OPTIONS = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
}


async def build(source: Source, snapshot: Snapshot, params: Params) -> Document:
    found, answer = await asked(source.run(list_acls, source.cluster, AclFilter()))
    wanted = params.get("q", "")
    chosen = [acl for acl in found or () if matching(wanted, acl.principal, acl.resource_name, acl.host)]
    limit = bounded_int(params, "limit", _MOST, _MOST)
    parts = {"answer": answer, "total": len(chosen), "acls": [_acl(acl) for acl in chosen[:limit]]}
    return document("acls", snapshot, parts, commands=_commands())


def _commands() -> list[Document]:
    return [
        command("List the ACLs", "acls", "list"),
        command(
            "Allow a user to write to a topic",
            *("acls", "add", "--principal", "User:ana", "--operation", "write", "--topic", "orders"),
        ),
    ]


def _acl(acl: AclBinding) -> Document:
    return {
        "resource_type": _word(acl.resource_type.name),
        "resource_name": acl.resource_name,
        "pattern": _word(acl.pattern_type.name),
        "principal": acl.principal,
        "host": acl.host,
        "operation": _word(acl.operation.name),
        "permission": _word(acl.permission.name),
        "remove": _removal(acl),
    }


def _removal(acl: AclBinding) -> str | None:
    """None for types of resources that the command line does not name."""
    if acl.resource_type is ResourceType.CLUSTER:
        resource = ["--cluster"]
    elif acl.resource_type in _OPTIONS:
        resource = [_OPTIONS[acl.resource_type], acl.resource_name]
    else:
        return None
    pattern = "prefixed" if acl.pattern_type is PatternType.PREFIXED else "literal"
    permission = "deny" if acl.permission is Permission.DENY else "allow"
    words = ["headrace", "acls", "remove", *resource, "--pattern", pattern, "--principal", acl.principal]
    words += ["--operation", _word(acl.operation.name), "--host", acl.host, "--permission", permission]
    return shlex.join(words)


def _word(name: str) -> str:
    return name.lower().replace("_", "-")


VIEW = View(name="acls", build=build, refresh_s=_REFRESH_S)
