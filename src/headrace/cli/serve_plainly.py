"""`headrace serve` without the command-line library, which takes longer to load than the whole node.

Reads the plain forms of its options by a table. Anything else (help, abbreviations, mistakes) is left to
serve.py, so that complaints come from one place; a test holds the table against its declaration there.
The only module of the CLI that reaches into the broker. Read next: broker/app.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import __version__
from headrace.cli.output import Output

if TYPE_CHECKING:
    from headrace.broker.node import Broker


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    data: Path | None = None
    listeners: tuple[str, ...] = ()
    config: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    from_env: bool = False
    allow_anonymous: bool = False
    node_id: int | None = None
    coordination: str | None = None
    allow_same_host: bool = False
    metrics_port: int | None = None
    log_format: str | None = None
    as_json: bool = False


FLAGS = {
    "--from-env": "from_env",
    "--allow-anonymous": "allow_anonymous",
    "--allow-same-host": "allow_same_host",
    "--json": "as_json",
}
PATHS = {"--data": "data", "-d": "data", "--config": "config", "-c": "config"}
TEXTS = {"--coordination": "coordination", "--log-format": "log_format"}
NUMBERS = {"--node-id": ("node_id", 0), "--metrics-port": ("metrics_port", -1)}
"""With the smallest that is allowed."""
REPEATED = {"--listener": "listeners", "-l": "listeners", "--set": "settings", "-s": "settings"}


def read_plainly(arguments: Sequence[str]) -> ServeOptions | None:
    """None when this is not `serve`, or not as plain as the table knows it."""
    if not arguments or arguments[0] != "serve":
        return None
    values: dict[str, Any] = {"listeners": [], "settings": []}
    words = list(reversed(arguments[1:]))
    try:
        while words:
            _read_option(words, values)
        return ServeOptions(
            **{**values, "listeners": tuple(values["listeners"]), "settings": _pairs(values["settings"])}
        )
    except (LookupError, ValueError):
        return None


def _read_option(words: list[str], values: dict[str, Any]) -> None:
    """Takes one option, with its value if it has one, off the end of `words`."""
    name, equals, value = words.pop().partition("=")
    if name in FLAGS and not equals:
        values[FLAGS[name]] = True
        return
    if equals and not name.startswith("--"):
        raise ValueError(name)
    text = value if equals else words.pop()
    if name in PATHS:
        values[PATHS[name]] = Path(text)
    elif name in TEXTS:
        values[TEXTS[name]] = text
    elif name in REPEATED:
        values[REPEATED[name]].append(text)
    else:
        setting, smallest = NUMBERS[name]
        if int(text) < smallest:
            raise ValueError(text)
        values[setting] = int(text)


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip() or key.strip() in pairs:
            raise ValueError(text)
        pairs[key.strip()] = value.strip()
    return pairs


def run_node(options: ServeOptions) -> int:
    """Flags into a configuration, then the node until it is told to stop; its exit code."""
    from headrace.config import listener_overrides, load_config

    flags: dict[str, object] = {
        "log.dirs": options.data,
        "node.id": options.node_id,
        "headrace.coordination": options.coordination,
        "headrace.allow.same.host": "true" if options.allow_same_host else None,
        "headrace.metrics.port": options.metrics_port,
        "headrace.log.format": options.log_format,
        "listeners.allow.anonymous": "true" if options.allow_anonymous else None,
    }
    overrides = {**options.settings, **listener_overrides(options.listeners)}
    overrides |= {key: str(value) for key, value in flags.items() if value is not None}
    config = load_config(options.config, overrides, dict(os.environ) if options.from_env else None)

    from headrace.broker.app import run

    return run(config, lambda broker: print_ready(broker, Output(as_json=options.as_json)))


def print_ready(broker: Broker, output: Output) -> None:
    """One line that says where the node is; programs wait for it."""
    listening = {endpoint.listener: f"{endpoint.host}:{endpoint.port}" for endpoint in broker.endpoints}
    data = str(broker.config.data_directory)
    metrics = None
    if broker.metrics_address is not None:
        metrics = f"http://{broker.metrics_address[0]}:{broker.metrics_address[1]}/metrics"
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
    output.flush()
