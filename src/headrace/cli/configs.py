# SPDX-License-Identifier: Apache-2.0
"""`headrace configs`: read and change the settings of topics and nodes, on any Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.option_sets import takes_options
from headrace.cli.options import HELP_STYLE, ConnectOptions, DryRun, Json, parse_pairs
from headrace.cli.output import Output
from headrace.cli.topics.min_insync import NAME as MIN_INSYNC
from headrace.cli.topics.min_insync import warn_of_min_insync

if TYPE_CHECKING:
    from headrace.client.tools.admin import ConfigValue, ResourceKind

app = typer.Typer(
    help="Read and change settings of topics and nodes.", no_args_is_help=True, rich_markup_mode=HELP_STYLE
)

TopicOption = Annotated[str | None, typer.Option("--topic", "-t", help="Settings of this topic.")]
NodeOption = Annotated[int | None, typer.Option("--node", "-n", help="Settings of the node with this id.")]


@app.command("get")
@takes_options
def get(
    *,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY]…", help="Show only these settings.")
    ] = None,
    topic: TopicOption = None,
    node: NodeOption = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Include settings with default values.")
    ] = False,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Show settings: their value and where it comes from.

    \b
    Examples:
      headrace configs get --topic orders
      headrace configs get --topic orders retention.ms cleanup.policy
      headrace configs get --node 1 --all --json
    """
    from headrace.client.errors import ClientError
    from headrace.client.tools.admin import Admin

    kind, name = _target(topic, node)
    output = Output(as_json=as_json)
    values = Admin(connect.cluster()).configs(kind, name)
    missing = sorted(set(keys or ()) - {value.name for value in values})
    if missing:
        raise ClientError(
            f"{kind} {name} has no setting {missing[0]!r}",
            next_step=f"see all: headrace configs get --{kind} {name} --all",
        )
    chosen = [
        value for value in values if (value.name in keys if keys else everything or not value.is_default)
    ]
    if as_json:
        output.document({kind: name, "configs": [_document(value) for value in chosen]})
        return
    output.table(("SETTING", "VALUE", "FROM"), [(v.name, _shown(v), v.source) for v in chosen])
    if output.terminal and not keys and not everything:
        output.note(f"{len(values) - len(chosen)} more have their default value; --all shows them")


@app.command("set")
@takes_options
def set_(
    *,
    values: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]…", help="Settings to change.")
    ] = None,
    topic: TopicOption = None,
    node: NodeOption = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="KEY", help="Return a setting to its default; may be repeated."),
    ] = None,
    dry_run: DryRun = False,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Change settings while the cluster runs; others keep their value.

    \b
    Examples:
      headrace configs set --topic orders retention.ms=3600000
      headrace configs set --topic orders cleanup.policy=compact --unset retention.ms
      headrace configs set --topic orders retention.ms=-1 --dry-run
      headrace configs set --node 1 log.retention.ms=86400000
    """
    from headrace.client.tools.admin import Admin
    from headrace.config.secret_arguments import refuse_secrets

    kind, name = _target(topic, node)
    pairs = parse_pairs(values, "KEY=VALUE")
    refuse_secrets(pairs, "configs set", "put it into the node's file and start the node again")
    if not pairs and not unset:
        raise typer.BadParameter("nothing to change: use KEY=VALUE or --unset KEY")
    output = Output(as_json=as_json)
    admin = Admin(connect.cluster())
    admin.alter_configs(kind, name, values=pairs, unset=unset or (), validate_only=dry_run)
    if kind == "topic" and MIN_INSYNC in pairs and not dry_run:
        warn_of_min_insync(admin, admin.describe_topic(name), output)
    if as_json:
        changed = {"set": pairs, "unset": unset or []}
        output.document({kind: name, **({"dry_run": True} if dry_run else {}), **changed})
        return
    changes = [f"{key}={value}" for key, value in pairs.items()]
    changes += [f"{key} to its default" for key in unset or ()]
    output.line(f"{'Would set' if dry_run else 'Set'} {', '.join(changes)} for {kind} {name}.")


def _target(topic: str | None, node: int | None) -> tuple[ResourceKind, str]:
    if (topic is None) == (node is None):
        raise typer.BadParameter("exactly one of --topic NAME and --node ID is required")
    return ("topic", topic) if topic is not None else ("node", str(node))


def _document(value: ConfigValue) -> dict[str, Any]:
    return {
        "name": value.name,
        "value": None if value.sensitive else value.value,
        "source": value.source,
        "read_only": value.read_only,
        "sensitive": value.sensitive,
    }


def _shown(value: ConfigValue) -> str | None:
    return "(secret)" if value.sensitive else value.value
