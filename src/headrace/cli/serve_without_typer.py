# SPDX-License-Identifier: Apache-2.0
"""Starts `headrace serve` without typer, which takes longer to load than the whole node.

Parses the plain forms of the options by a table. Anything else (help, abbreviations, mistakes) is left to
serve.py, so that usage errors come from one place; a test compares the table with the declarations there.
With cores/run.py the only module of the CLI that imports the broker. Read next: broker/app.py.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.errors import UsageError
from headrace.cli.output import Output
from headrace.cli.ready_line import print_ready
from headrace.cli.serve_options import ServeOptions

if TYPE_CHECKING:
    from headrace.config import NodeConfig

FLAGS = {
    "--from-env": "from_env",
    "--allow-anonymous": "allow_anonymous",
    "--allow-same-host": "allow_same_host",
    "--ephemeral": "ephemeral",
    "--json": "as_json",
}
PATHS = {"--data": "data", "-d": "data", "--config": "config", "-c": "config"}
TEXTS = {
    "--coordination": "coordination",
    "--cores": "cores",
    "--log-format": "log_format",
    "--log-level": "log_level",
}
_ANY, _LAST_PORT = 1 << 31, 65_535
NUMBERS = {
    "--node-id": ("node_id", 0, _ANY),
    "--as-core": ("as_core", 0, _ANY),
    "--metrics-port": ("metrics_port", -1, _ANY),
    "--port": ("port", 0, _LAST_PORT),
    "-p": ("port", 0, _LAST_PORT),
}
"""(field, minimum, maximum) by option."""
_EPHEMERAL = {
    "headrace.flush.default": "os",
    "headrace.metrics.port": "-1",
}
"""Of a node whose data nobody keeps: a test waits for nothing."""
REPEATED = {"--listener": "listeners", "-l": "listeners", "--set": "settings", "-s": "settings"}


def parse_serve(arguments: Sequence[str]) -> ServeOptions | None:
    """Parse the command line; None when it is not `serve` or uses anything the tables do not have."""
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
    """Parse one option and its value from the end of `words`."""
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
        setting, smallest, largest = NUMBERS[name]
        if not smallest <= int(text) <= largest:
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
    """Load the configuration and run the node until it is stopped; returns the exit code."""
    if not options.ephemeral:
        return _run_node(options, {})
    if options.data is not None:
        raise UsageError("--ephemeral and --data contradict each other", "leave one of them out")
    with tempfile.TemporaryDirectory(prefix="headrace-") as directory:
        port = 0 if options.port is None and not options.listeners else options.port
        return _run_node(replace(options, data=Path(directory), port=port), _EPHEMERAL)


def _run_node(options: ServeOptions, defaults: Mapping[str, str]) -> int:
    from headrace.config import listener_overrides, load_config
    from headrace.config.secret_arguments import refuse_secrets

    refuse_secrets(options.settings, "--set")
    flags: dict[str, object] = {
        "log.dirs": options.data,
        "node.id": options.node_id,
        "headrace.coordination": options.coordination,
        "headrace.allow.same.host": "true" if options.allow_same_host else None,
        "headrace.metrics.port": options.metrics_port,
        "headrace.log.format": options.log_format,
        "headrace.log.level": options.log_level,
        "listeners.allow.anonymous": "true" if options.allow_anonymous else None,
    }
    overrides = {**defaults, **listener_overrides(_listeners(options)), **options.settings}
    overrides |= {key: str(value) for key, value in flags.items() if value is not None}
    environment = dict(os.environ) if options.from_env else None
    output = Output(as_json=options.as_json)
    if options.as_core is not None:
        return _run_core(options, overrides, environment, output)
    config = load_config(options.config, overrides, environment)
    count = _core_count(options)
    if count > 1 or _has_cores(config):
        from headrace.cli.cores.run import run_cores

        return run_cores(options, config, count, defaults)

    from headrace.broker.app import run

    return run(config, lambda broker: print_ready(broker, output))


def _core_count(options: ServeOptions) -> int:
    if options.cores is None:
        return 1
    from headrace.cluster.cores.count import parse_cores

    return parse_cores(options.cores)


def _has_cores(config: NodeConfig) -> bool:
    """Whether `--cores` has used the data directory; its plan says for how many."""
    directory = config.data_directory
    return (directory / "cores").is_dir() and (directory / "cluster.json").exists()


def _run_core(
    options: ServeOptions, overrides: Mapping[str, str], environment: Mapping[str, str] | None, output: Output
) -> int:
    from headrace.cli.cores.as_core import endpoint_settings, stop_with_supervisor
    from headrace.config import load_config

    config = load_config(options.config, {**overrides, **endpoint_settings()}, environment)
    stop_with_supervisor()
    from headrace.broker.app import run

    return run(config, lambda broker: print_ready(broker, output), core=options.as_core)


def _listeners(options: ServeOptions) -> tuple[str, ...]:
    if options.port is None:
        return options.listeners
    if options.listeners:
        raise UsageError("--port and --listener contradict each other", "give the port with --listener")
    return (f"127.0.0.1:{options.port}",)
