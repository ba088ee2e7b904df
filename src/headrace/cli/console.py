# SPDX-License-Identifier: Apache-2.0
"""`headrace console`: serves the web console of a cluster until Ctrl-C.

Parses arguments and prints the address; headrace.console.web does the work. `headrace up --console` runs it
beside the nodes: cluster/beside.py.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.option_sets import takes_options
from headrace.cli.options import ConnectOptions, Json
from headrace.cli.output import Output, clean
from headrace.client.errors import ClientError

if TYPE_CHECKING:
    from headrace.client.cluster import Cluster
    from headrace.console.web.settings import WebSettings

DEFAULT_PORT = 8080


class LogLevel(StrEnum):
    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    port: Annotated[
        int,
        typer.Option("--port", "-p", min=0, max=65535, help="Port for browsers; 0: a free one."),
    ] = DEFAULT_PORT
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="Address to listen on. Others than those of this host itself need --login and TLS.",
        ),
    ] = "127.0.0.1"
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", metavar="NAME", help="Name under which browsers reach it, too; repeatable."
        ),
    ] = None
    login: Annotated[
        bool | None,
        typer.Option(
            "--login/--no-login",
            help="Visitors log in as users of the brokers, and see and do what these may. "
            "Default: where the settings of the client have a login.",
        ),
    ] = None
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse whatever changes the cluster.")] = (
        False
    )
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate for https, in PEM.")
    ] = None
    tls_key: Annotated[
        Path | None,
        typer.Option("--tls-key", metavar="FILE", help="Its key. Default: in the certificate's file."),
    ] = None
    behind_tls_proxy: Annotated[
        bool,
        typer.Option(
            "--behind-tls-proxy", help="A proxy in front of it speaks https with browsers; needs --login."
        ),
    ] = False
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="Least severe messages on standard error.")
    ] = LogLevel.info
    as_json: Json = False

    def settings(self, cluster: Cluster) -> WebSettings:
        from headrace.console.web.settings import WebSettings

        has_login = cluster.security.login is not None
        return WebSettings(
            cluster=cluster,
            host=self.host,
            port=self.port,
            allowed_hosts=tuple(self.allow_host or ()),
            login=has_login if self.login is None else self.login,
            read_only=self.read_only,
            certificate=self.tls_cert,
            key=self.tls_key,
            behind_tls_proxy=self.behind_tls_proxy,
        )


@takes_options
def console(*, connect: ConnectOptions, options: ConsoleOptions) -> None:
    """Serve the web console of a cluster, of Headrace or of Apache Kafka, until Ctrl-C.

    It shows the cluster, topics, groups, pipelines and more, live, on one page for browsers. It is a client:
    nothing is installed on the brokers. Needs the extra `console`.

    Without logins it acts as the user of --command-config, for everybody who can use this host. With logins
    every visitor gives a user and a password of the brokers, and only TLS of --command-config is used.

    \b
    Examples:
      headrace console
      headrace console --bootstrap kafka:9092 --read-only
      headrace console --command-config client.properties
      headrace console --port 0 --json
      headrace console --host 0.0.0.0 --allow-host streams.example.org --login \\
                       --tls-cert console.pem --tls-key console.key
    """
    need_console()
    settings = options.settings(connect.cluster())
    _set_up_logging(options.log_level)
    output = Output(as_json=options.as_json)

    from headrace.console.web.running import serve_until_signal

    serve_until_signal(settings, lambda url: _print_ready(settings, url, output))


def need_console() -> None:
    """The web server is in an extra, for nodes do without it."""
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise ClientError(
            f"the console needs the Python package {' and '.join(missing)}",
            next_step="pip install 'headrace[console]'",
        )


def _print_ready(settings: WebSettings, url: str, output: Output) -> None:
    if output.as_json:
        output.json_line(
            {
                "ready": True,
                "url": url,
                "bootstrap": settings.cluster.bootstrap,
                "login": settings.login,
                "read_only": settings.read_only,
            }
        )
    else:
        kind = "read-only, " if settings.read_only else ""
        logins = "with logins" if settings.login else "without logins"
        output.line(f"The console of {settings.cluster} is ready at {url} ({kind}{logins}; Ctrl-C stops it)")
    output.flush()


def _set_up_logging(level: LogLevel) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("headrace.console").setLevel(level.value.upper())


class _OneLine(logging.Formatter):
    """Texts of strangers cannot control the terminal or begin a line of their own (S17)."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return clean(super().formatMessage(record))
