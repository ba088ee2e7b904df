# SPDX-License-Identifier: Apache-2.0
"""The ready line of `headrace serve`, of one node and of all cores; programs wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headrace.cli.output import Output
from headrace.version import __version__

if TYPE_CHECKING:
    from headrace.cluster.cores.plan import CoreLayout
    from headrace.config import NodeConfig
    from headrace.types import Endpoint

_DEFAULT_ADDRESS = "127.0.0.1:9092"
_FIRST_STEPS = ("echo hello | headrace produce greetings", "headrace consume greetings", "headrace --help")


class RunningNode(Protocol):
    """The attributes of a node that the ready line shows."""

    node_id: int
    config: NodeConfig
    endpoints: tuple[Endpoint, ...]
    metrics_address: tuple[str, int] | None


def print_ready(broker: RunningNode, output: Output) -> None:
    """Print the ready line with the node's addresses; programs wait for it."""
    listening = {endpoint.listener: f"{endpoint.host}:{endpoint.port}" for endpoint in broker.endpoints}
    data = str(broker.config.data_directory)
    metrics = _metrics_url(broker.config, broker.metrics_address)
    if output.as_json:
        document = {"ready": True, "node_id": broker.node_id, "listeners": listening}
        output.json_line({**document, "data": data, "metrics": metrics, "version": __version__})
    else:
        addresses = ", ".join(
            address if len(listening) == 1 else f"{address} ({name})" for name, address in listening.items()
        )
        output.styled(
            (f"Headrace {__version__} ready", "bold green"),
            (" at ", ""),
            (addresses, "bold cyan"),
            (f", data in {data}, metrics at {metrics or 'none'}", ""),
        )
        if output.terminal:
            _print_first_steps(next(iter(listening.values())), output)
    output.flush()


def _metrics_url(config: NodeConfig, address: tuple[str, int] | None) -> str | None:
    if address is None:
        return None
    scheme = "https" if config["headrace.metrics.security.protocol"] == "SSL" else "http"
    return f"{scheme}://{address[0]}:{address[1]}/metrics"


def _print_first_steps(address: str, output: Output) -> None:
    """For a newcomer at a terminal; programs get the ready line alone."""
    elsewhere = () if address == _DEFAULT_ADDRESS else (f"export HEADRACE_BOOTSTRAP={address}",)
    output.styled(("Ctrl-C stops it. In another terminal:", "dim"))
    for command in (*elsewhere, *_FIRST_STEPS):
        output.styled((f"  {command}", "dim"))


def print_cores_ready(
    layout: CoreLayout, config: NodeConfig, metrics: tuple[str, int] | None, output: Output
) -> None:
    """The same of all cores, with the bootstrap list."""
    url = _metrics_url(config, metrics)
    plan, data = layout.plan, str(config.data_directory)
    if output.as_json:
        cores = [
            {
                "core": index,
                "node_id": member.node_id,
                "listeners": {
                    each.name: f"{each.advertised_host}:{each.advertised_port or each.port}" for each in own
                },
            }
            for index, (member, own) in enumerate(zip(plan.members, layout.listeners, strict=True))
        ]
        document = {"ready": True, "bootstrap": plan.bootstrap, "cores": cores, "data": data}
        output.json_line({**document, "metrics": url, "version": __version__})
    else:
        output.styled(
            (f"Headrace {__version__} ready", "bold green"),
            (f" on {len(plan.members)} cores at ", ""),
            (plan.bootstrap, "bold cyan"),
            (f", data in {data}, metrics at {url or 'none'}", ""),
        )
        if output.terminal:
            _print_first_steps(plan.bootstrap, output)
    output.flush()
