# SPDX-License-Identifier: Apache-2.0
"""View `users` (`q`): who can log in with a password that the cluster keeps (SCRAM).

    answer: {state: "ok"|"off"|"refused"|"failed", text, next}       why there are none, and what to do
    total (that match), users: [{name, mechanisms: [{mechanism, iterations}], weak (fewer iterations than
                                 RFC 7677 asks for), change, remove (commands)}]      by name, at most 1,000

Passwords and their hashes are not readable on any Kafka cluster.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from headrace.client.tools.users import UserAdmin
from headrace.console.state.model import Snapshot
from headrace.console.views.admin_document import asked, command, document, matching
from headrace.console.views.view import Document, Params, Source, View

_MOST = 1_000
_REFRESH_S = 15.0
_FEWEST_ITERATIONS = 4096


async def build(source: Source, snapshot: Snapshot, params: Params) -> Document:
    found, answer = await asked(source.run(lambda: UserAdmin(source.cluster).all()))
    chosen = [name for name in sorted(found or ()) if matching(params.get("q", ""), name)]
    users = [_user(name, (found or {})[name]) for name in chosen[:_MOST]]
    commands = [
        command("List the users", "users", "list"),
        command("Add a user; the password is asked for", "users", "add", "ana"),
    ]
    parts = {"answer": answer, "total": len(chosen), "users": users}
    return document("users", snapshot, parts, commands=commands)


def _user(name: str, mechanisms: Mapping[str, int]) -> Document:
    return {
        "name": name,
        "mechanisms": [{"mechanism": each, "iterations": mechanisms[each]} for each in sorted(mechanisms)],
        "weak": any(count < _FEWEST_ITERATIONS for count in mechanisms.values()),
        "change": shlex.join(("headrace", "users", "password", name)),
        "remove": shlex.join(("headrace", "users", "remove", name)),
    }


VIEW = View(name="users", build=build, refresh_s=_REFRESH_S)
