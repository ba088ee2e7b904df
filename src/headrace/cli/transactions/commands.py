# SPDX-License-Identifier: Apache-2.0
"""`headrace transactions`: list, describe, explain and end transactions, on any Kafka.

Parses arguments: view.py prints. Requests: client/tools/transactions.py; what holds readers back:
client/tools/transaction_report.py.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.durations import parse_duration_ms
from headrace.cli.option_sets import takes_options
from headrace.cli.options import HELP_STYLE, ConnectOptions, Json, Yes, confirm
from headrace.cli.output import Output, clean, quoted
from headrace.cli.transactions.abort_options import AbortTarget

if TYPE_CHECKING:
    from headrace.client.cluster import Cluster
    from headrace.client.tools.transactions import FencedProducer, TransactionDescription

app = typer.Typer(
    help="List, explain and end transactions, and find those that hang.",
    no_args_is_help=True,
    rich_markup_mode=HELP_STYLE,
)

Id = Annotated[str, typer.Option("--id", metavar="ID", help="The transactional id.")]


@app.command("list")
@takes_options
def list_(
    *,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="Only in this state: Ongoing, PrepareCommit, …; repeatable."
        ),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="N", help="Only of this producer id; repeatable."),
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option("--longer-than", metavar="DURATION", help="Only those open for longer: 30s, 10m."),
    ] = None,
    id_pattern: Annotated[
        str | None,
        typer.Option("--id", metavar="PATTERN", help="Only transactional ids that this expression matches."),
    ] = None,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """List transactional ids and their states.

    With coordinator and producer id, from all brokers. PATTERN is a regular expression for the whole id.

    \b
    Examples:
      headrace transactions list
      headrace transactions list --state Ongoing --longer-than 10m
      headrace transactions list --id 'copier-.*' --json
    """
    from headrace.cli.transactions import view
    from headrace.client.tools.transactions import TransactionFilter, list_transactions, with_brokers

    wanted = TransactionFilter(
        states=_states(state),
        producer_ids=producer_id or (),
        longer_than_ms=None if longer_than is None else parse_duration_ms(longer_than, "--longer-than"),
        id_pattern=id_pattern,
    )
    output = Output(as_json=as_json)
    found = with_brokers(connect.cluster(), lambda brokers: list_transactions(brokers, wanted))
    view.show_list(output, found)


@app.command()
@takes_options
def describe(*, transactional_id: Id, connect: ConnectOptions, as_json: Json = False) -> None:
    """Show a transactional id and its transaction.

    Its producer, state, time-out, and since when it is open in which partitions.

    Once a transaction is being ended, PARTITIONS are those that still wait for their marker.

    \b
    Examples:
      headrace transactions describe --id copier
      headrace transactions describe --id copier --json
    """
    from headrace.cli.transactions import view

    output = Output(as_json=as_json)
    view.show_description(output, _described(connect.cluster(), transactional_id), _now_ms())


@app.command()
@takes_options
def explain(
    *,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Explain why read_committed readers stand still.

    Shows who holds them back, since when and until when, and the next command to run. They
    read up to the last stable offset: the first offset of the oldest transaction that is open
    in the partition.

    \b
    Examples:
      headrace transactions explain orders
      headrace transactions explain orders --json
    """
    from headrace.cli.transactions import view
    from headrace.client.tools import transaction_report

    output = Output(as_json=as_json)
    waits = transaction_report.explain(connect.cluster(), topic)
    view.show_waits(output, topic, waits, _now_ms())


@app.command("find-hanging")
@takes_options
def find_hanging(
    *,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Search the leaders of this topic.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, metavar="N", help="Only this partition; with --topic.")
    ] = None,
    broker: Annotated[
        int | None,
        typer.Option("--broker", metavar="N", help="Search the replicas on this node, of all topics or one."),
    ] = None,
    max_timeout: Annotated[
        str,
        typer.Option(
            "--max-transaction-timeout",
            metavar="DURATION",
            help="Leave out transactions with a record younger than this.",
        ),
    ] = "15m",
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Find open transactions that nobody will end.

    They are open in a partition, but no coordinator knows them there. Give
    --max-transaction-timeout what brokers have as transaction.max.timeout.ms: a younger
    transaction may still be at work.

    \b
    Examples:
      headrace transactions find-hanging --topic orders
      headrace transactions find-hanging --broker 1
      headrace transactions find-hanging --topic orders --partition 0 --max-transaction-timeout 1h
    """
    from headrace.cli.transactions import view
    from headrace.client.tools import transaction_report

    if topic is None and broker is None:
        raise typer.BadParameter("--topic or --broker is needed, to limit the search")
    if partition is not None and topic is None:
        raise typer.BadParameter("needs --topic", param_hint="--partition")
    older_than_ms = parse_duration_ms(max_timeout, "--max-transaction-timeout")
    output, now_ms = Output(as_json=as_json), _now_ms()
    report = transaction_report.find_hanging(
        connect.cluster(),
        topic=topic,
        partition=partition,
        node_id=broker,
        older_than_ms=older_than_ms,
        now_ms=now_ms,
    )
    view.show_hanging(output, report, now_ms)


@app.command()
@takes_options
def abort(*, target: AbortTarget, yes: Yes = False, connect: ConnectOptions, as_json: Json = False) -> None:
    """End a hanging transaction in one partition.

    Writes an abort marker there. With --start-offset the producer is looked up, and a
    transaction whose coordinator still knows it is refused: `terminate` ends that in all its
    partitions. With --producer-id, --producer-epoch and --coordinator-epoch nothing is checked;
    brokers before Apache Kafka 3.0 need it.

    \b
    Examples:
      headrace transactions abort --topic orders --partition 0 --start-offset 120
      headrace transactions abort --topic orders --partition 0 --start-offset 120 --yes
      headrace transactions abort --topic orders --partition 0 \\
        --producer-id 4001 --producer-epoch 3 --coordinator-epoch 0
    """
    from headrace.cli.transactions.abort import aborted_document, find_marker
    from headrace.client.tools.transactions import MARKERS, with_brokers, write_abort_marker

    target.check()
    output = Output(as_json=as_json)
    cluster = connect.cluster()
    marker = find_marker(cluster, target)
    place = f"partition {marker.partition.partition} of topic '{clean(marker.partition.topic)}'"
    producer = f"producer id {marker.producer_id}, epoch {marker.producer_epoch}"
    confirm(f"abort the transaction of {producer} in {place} at {cluster}, for good", yes=yes)
    with_brokers(cluster, lambda brokers: write_abort_marker(brokers, marker), needs=MARKERS)
    output.say(aborted_document(marker), f"Aborted the transaction of {producer} in {place}.")


@app.command()
@takes_options
def terminate(
    *, transactional_id: Id, yes: Yes = False, connect: ConnectOptions, as_json: Json = False
) -> None:
    """Abort the transaction of a transactional id.

    In all its partitions. Its producer is fenced: it is refused from then on, until it is
    opened again.

    \b
    Examples:
      headrace transactions terminate --id copier
      headrace transactions terminate --id copier --yes
    """
    from headrace.cli.transactions.abort import check_ongoing

    output = Output(as_json=as_json)
    cluster = connect.cluster()
    found = _described(cluster, transactional_id)
    check_ongoing(found)
    name, count = clean(transactional_id), len(found.partitions)
    where = f"{count} partition{'' if count == 1 else 's'}"
    confirm(f"abort the transaction of '{name}' at {cluster} in {where}, and fence its producer", yes=yes)
    _fenced(cluster, transactional_id)
    document = {
        "transactional_id": transactional_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "partitions": [list(each) for each in found.partitions],
        "terminated": True,
    }
    output.say(document, f"Aborted the transaction of '{transactional_id}' in {where}.")


@app.command()
@takes_options
def fence(
    *,
    transactional_ids: Annotated[
        list[str], typer.Option("--id", metavar="ID", help="The transactional id; repeatable.")
    ],
    yes: Yes = False,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Fence the producers of transactional ids.

    They are refused until they are opened again. What they have open is aborted.

    \b
    Examples:
      headrace transactions fence --id copier
      headrace transactions fence --id copier-1 --id copier-2 --yes
    """
    output = Output(as_json=as_json)
    cluster = connect.cluster()
    for each in transactional_ids:
        _described(cluster, each)  # fencing would create an id that is not there
    names = quoted([clean(each) for each in transactional_ids])
    confirm(f"fence the producers of {names} at {cluster}, and abort what they have open", yes=yes)
    documents = [
        {
            "transactional_id": each.transactional_id,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
        }
        for each in [_fenced(cluster, name) for name in transactional_ids]
    ]
    output.say({"fenced": documents}, f"Fenced the producers of {quoted(transactional_ids)}.")


def _described(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    from headrace.client.tools.transactions import describe_transaction, with_brokers

    return with_brokers(cluster, lambda brokers: describe_transaction(brokers, transactional_id))


def _fenced(cluster: Cluster, transactional_id: str) -> FencedProducer:
    from headrace.client.tools.transactions import fence_producers, with_brokers

    return with_brokers(cluster, lambda brokers: fence_producers(brokers, transactional_id))


def _states(given: list[str] | None) -> list[str]:
    """As Kafka writes them."""
    from headrace.client.tools.transactions import STATES

    known = {name.lower(): name for name in STATES}
    for name in given or ():
        if name.lower() not in known:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(STATES)}", param_hint="--state")
    return [known[name.lower()] for name in given or ()]


def _now_ms() -> int:
    return int(time.time() * 1000)
