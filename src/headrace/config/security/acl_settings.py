# SPDX-License-Identifier: Apache-2.0
"""Settings of a node for authorization by ACLs. Kafka's names and defaults.

node_settings.py gathers them with the others. Read next: broker/security/authorizer.py (what they mean).
"""

from __future__ import annotations

from headrace.config.setting import Allowed, node_setting

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _super_users_problem(text: str) -> str | None:
    for entry in _entries(text):
        kind, _, name = entry.partition(":")
        if not kind or not name:
            return f"{entry} is no principal: write KIND:NAME, as User:admin, and separate several by ;"
    return None


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(";") if entry.strip()]


def super_users(text: str) -> frozenset[str]:
    """The principals in the value of super.users. Names of certificates contain commas, hence semicolons."""
    return frozenset(_entries(text))


ACLS = (
    node_setting(
        "authorizer.class.name",
        "string",
        "",
        "With the name of Kafka's authorizer, requests are authorized by ACLs; the class itself is built in. "
        "Empty: everything is allowed. The same on all nodes.",
        Allowed(
            text=f"empty or {STANDARD_AUTHORIZER}",
            problem=lambda value: (
                None
                if value in ("", STANDARD_AUTHORIZER)
                else f"There is one authorizer, {STANDARD_AUTHORIZER}: name it, or leave this empty"
            ),
        ),
    ),
    node_setting(
        "super.users",
        "string",
        "",
        "Principals that may do everything, whatever the ACLs say: `User:CN=a,OU=b;User:c`.",
        Allowed(text="principals separated by ;", problem=_super_users_problem),
    ),
    node_setting(
        "allow.everyone.if.no.acl.found",
        "boolean",
        False,
        "Whether everyone may use a resource that no ACL has an effect on.",
    ),
)
