# SPDX-License-Identifier: Apache-2.0
"""Options that Apache Kafka's tools share, their parser, and their errors.

Long options as Kafka's parser takes them: `--topic orders`, `--topic=orders`, or an unambiguous beginning.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from headrace.cli.errors import UsageError
from headrace.cli.output import clean
from headrace.client.client_config import VARIABLE, overridden, read_client_config
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, as_flags
from headrace.client.security_names import is_secret_name, is_security_name, read_security
from headrace.version import __version__


class ToolHelp(Exception):
    """Help or the version was printed: nothing else is to be done."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class ToolParser(argparse.ArgumentParser):
    """Raises instead of ending the process. Every tool has --bootstrap-server, --help and --version."""

    def __init__(self, tool: str, description: str) -> None:
        super().__init__(prog=tool, description=description, add_help=False, allow_abbrev=True)
        self.add_argument(
            "--bootstrap-server",
            "--broker-list",
            metavar="HOST:PORT",
            help="Required. Brokers to connect to.",
        )
        self.add_argument("--help", action="help", help="Print this help.")
        self.add_argument("--version", action="version", version=__version__, help="Print the version.")
        self.add_argument("--zookeeper", help=argparse.SUPPRESS)

    def flag(self, *names: str, help: str) -> None:
        self.add_argument(*names, action="store_true", help=help)

    def text(self, *names: str, **options: Any) -> None:
        self.add_argument(*names, **options)

    def number(self, *names: str, **options: Any) -> None:
        self.add_argument(*names, type=int, **options)

    def repeated(self, *names: str, **options: Any) -> None:
        self.add_argument(*names, action="append", default=[], **options)

    def parse_tool(self, arguments: Sequence[str]) -> argparse.Namespace:
        options = self.parse_args(arguments)
        if options.zookeeper is not None:
            raise UsageError(
                "--zookeeper was removed from Kafka's tools: they ask a broker",
                "use --bootstrap-server HOST:PORT, in the container --bootstrap-server localhost:9092",
            )
        if options.bootstrap_server is None:
            raise UsageError('Missing required argument "[bootstrap-server]"', self._see_help())
        return options

    def require(self, options: argparse.Namespace, *names: str) -> None:
        for name in names:
            if not getattr(options, name):
                raise UsageError(f'Missing required argument "[{name}]"', self._see_help())

    def one_action(self, options: argparse.Namespace, actions: Sequence[str]) -> str:
        """The one of these flags that is set."""
        chosen = [action for action in actions if getattr(options, action.replace("-", "_"))]
        if len(chosen) != 1:
            named = ", ".join(f"--{action}" for action in actions)
            raise UsageError(f"Command must include exactly one action: {named}", self._see_help())
        return chosen[0]

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, self._see_help())

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise ToolHelp(status)

    def _see_help(self) -> str:
        return f"see: {self.prog} --help"


def parse_properties(texts: Iterable[str], option: str) -> dict[str, str]:
    """KEY=VALUE texts; of two with the same key the last one counts, and a value may be empty."""
    properties = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"{option} {text!r} is not KEY=VALUE")
        properties[key] = value
    return properties


def properties_of(file: str | None, texts: Iterable[str], option: str) -> dict[str, str]:
    """A properties file and KEY=VALUE options, which win."""
    try:
        found = {} if file is None else read_client_config(file)
    except ClientError as error:
        raise UsageError(error.what, error.next_step) from None
    return found | parse_properties(texts, option)


def client_properties(file: str | None, texts: Sequence[str], option: str) -> dict[str, str]:
    """Settings of the client; without a file those of the file that HEADRACE_CLIENT_CONFIG names."""
    given = parse_properties(texts, option)
    secret = next((key for key in given if is_secret_name(key)), None)
    if secret is not None:
        raise UsageError(
            f"{option} {secret}=…: other users of this machine can see arguments",
            "write it into a file: --command-config FILE",
        )
    return overridden(properties_of(file or os.environ.get(VARIABLE), (), option), given)


def cluster_of(options: argparse.Namespace, properties: Mapping[str, str]) -> Cluster:
    """The cluster at --bootstrap-server, with the security of the client's settings."""
    try:
        return Cluster(bootstrap=options.bootstrap_server, security=read_security(properties))
    except ClientError as error:
        raise UsageError(error.what, error.next_step) from None


def note_ignored(names: Iterable[str]) -> None:
    """Settings without effect are said, not refused, as in Apache Kafka."""
    ignored = sorted(name for name in names if not is_security_name(name))
    if ignored:
        print(f"WARN: no effect here: {clean(', '.join(ignored))}", file=sys.stderr)


def fail(tool: str, form: str | None, error: ClientError) -> None:
    """Kafka's line on stdout, where scripts look for it, and the next step on stderr; or all on stderr."""
    if form is None:
        fail_usage(tool, error.what, error.next_step)
        return
    print(form.format(clean(error.what)))
    if next_step := as_flags(error.next_step):
        print(clean(next_step), file=sys.stderr)


def fail_usage(tool: str, what: str, next_step: str | None) -> None:
    next_step = as_flags(next_step)
    print(f"{tool}: {clean(f'{what}; {next_step}' if next_step else what)}", file=sys.stderr)
