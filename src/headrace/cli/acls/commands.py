# SPDX-License-Identifier: Apache-2.0
"""`headrace acls`: list, add and remove ACLs, on any Kafka.

Options: acl_options.py. Requests: client/tools/acls.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.acls.acl_options import Filters, Resources, filters_of, new_acls, shown
from headrace.cli.option_sets import takes_options
from headrace.cli.options import HELP_STYLE, ConnectOptions, DryRun, Json, Yes, confirm
from headrace.cli.output import Output

if TYPE_CHECKING:
    from headrace.acls import AclBinding, AclFilter
    from headrace.client.cluster import Cluster

app = typer.Typer(
    help="List, add and remove ACLs: who may do what.", no_args_is_help=True, rich_markup_mode=HELP_STYLE
)


@app.command("list")
@takes_options
def list_(
    *,
    resources: Resources,
    filters: Filters,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """List ACLs: all, or those that the options name.

    \b
    Examples:
      headrace acls list
      headrace acls list --topic orders --pattern match
      headrace acls list --principal User:ana --json
    """
    output = Output(as_json=as_json)
    found = _found(connect.cluster(), filters_of(resources, filters))
    if output.terminal and not found and not as_json:
        output.note("There are no such ACLs; headrace acls add --help shows how to add one.")
        return
    _show(output, found)


@app.command()
@takes_options
def add(
    *,
    principal: Annotated[
        str, typer.Option("--principal", "-p", metavar="User:NAME", help="Who; User:* means everyone.")
    ],
    operation: Annotated[
        list[str], typer.Option("--operation", "-o", help="What: read, write, describe, all, …; repeatable.")
    ],
    resources: Resources,
    prefixed: Annotated[
        bool, typer.Option("--prefixed", help="The names are prefixes: all that begins with them.")
    ] = False,
    host: Annotated[str, typer.Option("--host", help="Only for connections from this address.")] = "*",
    deny: Annotated[bool, typer.Option("--deny", help="Deny it instead; a denial always wins.")] = False,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Add ACLs: allow a principal something, or deny it.

    A producer needs write on its topics; a consumer needs read on its topics and on its group.

    \b
    Examples:
      headrace acls add --principal User:ana --operation write --topic orders
      headrace acls add --principal User:bo --operation read --topic orders --group billing
      headrace acls add --principal User:ops --operation all --topic eu- --prefixed
      headrace acls add --principal 'User:*' --operation delete --topic '*' --deny
    """
    from headrace.client.tools.acls import create_acls

    acls = new_acls(
        resources, principal=principal, operations=operation, host=host, prefixed=prefixed, deny=deny
    )
    create_acls(connect.cluster(), acls)
    _show(Output(as_json=as_json), acls)


@app.command()
@takes_options
def remove(
    *,
    resources: Resources,
    filters: Filters,
    everything: Annotated[
        bool, typer.Option("--all", help="Remove all ACLs; needed when nothing else is named.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Remove ACLs that the options name, after showing them and asking.

    \b
    Examples:
      headrace acls remove --principal User:ana --topic orders --operation write
      headrace acls remove --principal User:bo
      headrace acls remove --topic orders --dry-run
      headrace acls remove --all --yes
    """
    from headrace.acls import AclFilter
    from headrace.client.tools.acls import delete_acls

    wanted = filters_of(resources, filters)
    if wanted == [AclFilter()] and not everything:
        raise typer.BadParameter("nothing named: add --topic, --principal, … or --all")
    output = Output(as_json=as_json)
    cluster = connect.cluster()
    found = _found(cluster, wanted)
    if not found:
        output.say({"removed": []}, "There are no such ACLs.")
        return
    many = f"{len(found)} ACL{'' if len(found) == 1 else 's'}"
    if dry_run:
        _show_would_remove(output, found, many)
        return
    if not yes:
        for acl in found:
            output.note(_sentence(acl))
    confirm(f"remove {many}", yes=yes)
    count = delete_acls(cluster, found)
    output.say({"removed": [_document(acl) for acl in found]}, f"Removed {count} ACLs.")


def _show_would_remove(output: Output, found: list[AclBinding], many: str) -> None:
    if output.as_json:
        output.document({"dry_run": True, "would_remove": [_document(acl) for acl in found]})
        return
    _show(output, found)
    output.note(f"Would remove {many}.")


def _found(cluster: Cluster, wanted: list[AclFilter]) -> list[AclBinding]:
    from headrace.client.tools.acls import list_acls

    return sorted({acl for each in wanted for acl in list_acls(cluster, each)})


def _show(output: Output, acls: list[AclBinding]) -> None:
    if output.as_json:
        output.document([_document(acl) for acl in acls])
        return
    output.table(
        ("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"),
        [tuple(_document(acl).values()) for acl in acls],
    )


def _document(acl: AclBinding) -> dict[str, Any]:
    return {
        "resource": shown(acl.resource_type),
        "name": acl.resource_name,
        "pattern": shown(acl.pattern_type),
        "principal": acl.principal,
        "host": acl.host,
        "operation": shown(acl.operation),
        "permission": shown(acl.permission),
    }


def _sentence(acl: AclBinding) -> str:
    verb = "is allowed" if shown(acl.permission) == "allow" else "is denied"
    where = "" if acl.host == "*" else f" from {acl.host}"
    kind = f"{shown(acl.resource_type)} {acl.resource_name!r}"
    names = f"names that begin with {kind}" if shown(acl.pattern_type) == "prefixed" else kind
    return f"{acl.principal} {verb} {shown(acl.operation)} on {names}{where}"
