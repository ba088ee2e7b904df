# SPDX-License-Identifier: Apache-2.0
"""`headrace quotas`: list, set and remove the quotas of users, client ids and addresses, on any Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from headrace.cli.option_sets import takes_options
from headrace.cli.options import HELP_STYLE, ConnectOptions, Json, parse_pairs
from headrace.cli.output import Output
from headrace.client_quotas import CLIENT_QUOTAS, DEFAULT, IP_QUOTAS, QuotaEntity

app = typer.Typer(
    help="Limit what users, client ids and addresses use.", no_args_is_help=True, rich_markup_mode=HELP_STYLE
)
NAMES = ", ".join((*CLIENT_QUOTAS, *IP_QUOTAS))


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityOptions:
    """Whom quotas are for."""

    user: Annotated[str | None, typer.Option("--user", "-u", help="A user.")] = None
    default_user: Annotated[
        bool, typer.Option("--default-user", help="Every user without quotas of their own.")
    ] = False
    client_id: Annotated[
        str | None, typer.Option("--client-id", "-c", help="A client id; with a user, of that user.")
    ] = None
    default_client_id: Annotated[
        bool, typer.Option("--default-client-id", help="Every client id without quotas of its own.")
    ] = False
    ip: Annotated[str | None, typer.Option("--ip", help="An address that clients connect from.")] = None
    default_ip: Annotated[
        bool, typer.Option("--default-ip", help="Every address without quotas of its own.")
    ] = False

    def entity(self) -> QuotaEntity | None:
        """None when no option is given."""
        user = _name("user", self.user, default=self.default_user)
        client_id = _name("client-id", self.client_id, default=self.default_client_id)
        ip = _name("ip", self.ip, default=self.default_ip)
        if ip is not None and (user is not None or client_id is not None):
            raise typer.BadParameter("quotas of an address cannot be combined with a user or a client id")
        entity = QuotaEntity(user, client_id, ip)
        return entity if entity.items() else None

    def required(self) -> QuotaEntity:
        entity = self.entity()
        if entity is None:
            raise typer.BadParameter("whose quotas? use --user, --client-id, --ip, or their --default-…")
        return entity


def _name(option: str, name: str | None, *, default: bool) -> str | None:
    if name is not None and default:
        raise typer.BadParameter(f"use --{option} or --default-{option}, not both")
    if name == "":
        raise typer.BadParameter(f"--{option} needs a name; for the default use --default-{option}")
    return DEFAULT if default else name


@app.command("list")
@takes_options
def list_(*, whose: EntityOptions, connect: ConnectOptions, as_json: Json = False) -> None:
    """Show all quotas, or those of one entity.

    \b
    Examples:
      headrace quotas list
      headrace quotas list --user alice --json
    """
    from headrace.client.tools.quotas import describe_quotas

    output = Output(as_json=as_json)
    quotas_of = describe_quotas(connect.cluster(), whose.entity())
    found = sorted(quotas_of.items(), key=lambda item: [(kind, name or "") for kind, name in item[0].items()])
    if as_json:
        output.document([{**_document(entity), "quotas": dict(quotas)} for entity, quotas in found])
        return
    rows = [
        (*map(_shown, entity), name, _number(value))
        for entity, quotas in found
        for name, value in sorted(quotas.items())
    ]
    output.table(("USER", "CLIENT ID", "IP", "QUOTA", "VALUE"), rows)


@app.command("set")
@takes_options
def set_(
    *,
    values: Annotated[list[str], typer.Argument(metavar="QUOTA=VALUE…", help=f"Of {NAMES}.")],
    whose: EntityOptions,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Set quotas; others of the same entity keep their value.

    \b
    Examples:
      headrace quotas set --user alice producer_byte_rate=1048576
      headrace quotas set --default-user --client-id app consumer_byte_rate=2097152
      headrace quotas set --default-ip connection_creation_rate=10
    """
    from headrace.client.tools.quotas import alter_quotas

    entity = whose.required()
    numbers = {name: _parse(name, text) for name, text in parse_pairs(values, "QUOTA=VALUE").items()}
    output = Output(as_json=as_json)
    alter_quotas(connect.cluster(), entity, numbers)
    if as_json:
        output.document({**_document(entity), "set": numbers})
        return
    changes = ", ".join(f"{name}={_number(value)}" for name, value in numbers.items())
    output.line(f"Set {changes} for {entity}.")


@app.command("remove")
@takes_options
def remove(
    *,
    whose: EntityOptions,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[QUOTA]…", help="Remove only these quotas.")
    ] = None,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Remove quotas of one entity, all of them unless some are named.

    \b
    Examples:
      headrace quotas remove --user alice
      headrace quotas remove --user alice producer_byte_rate
    """
    from headrace.client.errors import ClientError
    from headrace.client.tools.quotas import alter_quotas, describe_quotas

    entity = whose.required()
    cluster = connect.cluster()
    present = describe_quotas(cluster, entity).get(entity, {})
    wanted = names or sorted(present)
    missing = sorted(set(wanted) - set(present))
    if missing or not wanted:
        what = f"no quota {missing[0]}" if missing else "no quotas"
        raise ClientError(f"{entity} has {what}", next_step="see all: headrace quotas list")
    output = Output(as_json=as_json)
    alter_quotas(cluster, entity, {}, remove=wanted)
    if as_json:
        output.document({**_document(entity), "removed": wanted})
        return
    output.line(f"Removed {', '.join(wanted)} of {entity}.")


def _parse(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{name}={text} is not a number", param_hint="QUOTA=VALUE") from None


def _document(entity: QuotaEntity) -> Mapping[str, Any]:
    """None is the default; parts that the entity does not have are left out."""
    return {kind.replace("-", "_"): name for kind, name in entity.items()}


def _shown(name: str | None) -> str | None:
    return "(default)" if name == DEFAULT else name


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else str(value)
