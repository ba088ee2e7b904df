# SPDX-License-Identifier: Apache-2.0
"""`headrace doctor`: checks this host and, if one runs, a broker; every problem comes with its fix.

Read next: host_checks.py, disk_checks.py, network_checks.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.client_settings import connect
from headrace.cli.options import ClientSettings, CommandConfig, Json
from headrace.cli.output import Output

if TYPE_CHECKING:
    from headrace.cli.doctor.finding import Finding, Status
    from headrace.client.cluster import Cluster
    from headrace.config import NodeConfig

_STYLES: dict[Status, str] = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    *,
    data: Annotated[
        Path | None,
        typer.Option("--data", "-d", metavar="DIR", help="Data directory. Default: as for `headrace serve`."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="Also check this properties file, and its ports and directory.",
        ),
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            envvar="HEADRACE_BOOTSTRAP",
            metavar="HOST:PORT",
            help="Check this broker and the addresses that it advertises. Default: one that runs on the "
            "port of this host.",
        ),
    ] = None,
    command_config: CommandConfig = None,
    client_settings: ClientSettings = None,
    as_json: Json = False,
) -> None:
    """Check whether a node can run here: ports, disk, clock, limits, Java, kernels, extras and listeners.

    Each finding is ok, warn (it works, with a drawback) or fail, and comes with what to do about it. The exit
    code is 1 when something fails, else 0.

    \b
    Examples:
      headrace doctor
      headrace doctor --data /srv/headrace
      headrace doctor --config server.properties
      headrace doctor --bootstrap broker.example.com:9092 --json
    """
    cluster = None if bootstrap is None else connect(bootstrap, command_config, client_settings or ())
    findings = list(_findings(data, config, cluster))
    failed = any(finding.status == "fail" for finding in findings)
    output = Output(as_json=as_json)
    if as_json:
        output.document({"ok": not failed, "findings": [finding.document() for finding in findings]})
    else:
        _show(findings, output)
    if failed:
        raise typer.Exit(1)


def _findings(data: Path | None, file: Path | None, cluster: Cluster | None) -> Iterator[Finding]:
    from headrace.cli.doctor import host_checks
    from headrace.cli.doctor.disk_checks import check_disk
    from headrace.cli.doctor.finding import Finding
    from headrace.errors import ConfigError

    yield host_checks.check_python()
    yield host_checks.check_kernels()
    yield from host_checks.check_extras()
    yield host_checks.check_java()
    yield host_checks.check_limits()
    yield host_checks.check_clock()
    yield host_checks.check_timezone()
    try:
        config = _node_config(data, file, allow_anonymous=True)
    except ConfigError as error:
        yield Finding(check="configuration", status="fail", found=str(error), fix="correct the file")
        return
    try:
        _node_config(data, file, allow_anonymous=False)
    except ConfigError as error:
        fix = "start it with --allow-anonymous, or as that says"
        yield Finding(check="configuration", status="warn", found=str(error), fix=fix)
    for note in config.notes:
        yield Finding(check="configuration", status="warn", found=note, fix="remove what has no effect")
    yield from check_disk(config.data_directory)
    yield from _network(config, cluster)


def _node_config(data: Path | None, file: Path | None, *, allow_anonymous: bool) -> NodeConfig:
    from headrace.config import load_config

    directory = {} if data is None else {"log.dirs": str(data)}
    anonymous = {"listeners.allow.anonymous": "true"} if allow_anonymous else {}
    return load_config(file, directory | anonymous, None)


def _network(config: NodeConfig, cluster: Cluster | None) -> Iterator[Finding]:
    from headrace.cli.doctor.network_checks import broker_answers, check_broker, check_port
    from headrace.client.cluster import Cluster

    for listener in config.listeners:
        here = Cluster(bootstrap=f"127.0.0.1:{listener.port}")
        answers = bool(listener.port) and not listener.tls and broker_answers(here)
        yield check_port(f"listener {listener.name}", listener.host, listener.port, answers=answers)
        if answers and cluster is None:
            yield from check_broker(here)
    metrics_port: int = config["headrace.metrics.port"]
    if metrics_port > 0:
        yield check_port("metrics", config["headrace.metrics.host"], metrics_port)
    if cluster is not None:
        yield from check_broker(cluster)


def _show(findings: Sequence[Finding], output: Output) -> None:
    if not output.terminal:
        rows = [(each.check, each.status, each.found, each.fix) for each in findings]
        output.table(("CHECK", "STATUS", "FOUND", "FIX"), rows)
        return
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        style = _STYLES[finding.status]
        output.styled(
            (f"{finding.status:<4}  ", style), (f"{finding.check:<{width}}  ", "bold"), (finding.found, "")
        )
        if finding.fix is not None:
            output.styled(
                (" " * (width + 8), ""), (f"→ {finding.fix}", "" if finding.status != "ok" else "dim")
            )
    counts = {status: sum(finding.status == status for finding in findings) for status in _STYLES}
    output.styled(
        (f"{counts['ok']} ok, {counts['warn']} warning{'' if counts['warn'] == 1 else 's'}, ", "bold"),
        (f"{counts['fail']} failed", "bold red" if counts["fail"] else "bold"),
    )
