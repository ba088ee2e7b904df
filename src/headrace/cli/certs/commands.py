# SPDX-License-Identifier: Apache-2.0
"""`headrace certs`: certificates for TLS of nodes and clients, from a small authority in a folder.

Read next: open_authority.py, authority.py, folder.py.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.certs.open_authority import (
    AUTHORITY_DAYS,
    CERTIFICATE_DAYS,
    need_cryptography,
    open_authority,
)
from headrace.cli.option_sets import takes_options
from headrace.cli.options import HELP_STYLE, Json, Yes, confirm
from headrace.cli.output import Output

if TYPE_CHECKING:
    from headrace.cli.certs.folder import CertificateFolder

app = typer.Typer(help="Make certificates for TLS.", no_args_is_help=True, rich_markup_mode=HELP_STYLE)

_DEFAULT_HOSTS = "localhost,127.0.0.1,::1"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?"
_HOST = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")
_CLIENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,63}")


def _with_loopback(names: list[str]) -> list[str]:
    """A node on localhost is advertised by its address, unless it says otherwise."""
    loopback = _DEFAULT_HOSTS.split(",") if "localhost" in names else []
    return list(dict.fromkeys([*names, *loopback]))


@app.callback()
def _group() -> None:
    """Without it typer would make `make` the whole command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeOptions:
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the certificates.")]
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="NAME[,NAME]",
            help="A node: its host names and addresses, separated by commas; repeatable. "
            f"Default without --client: {_DEFAULT_HOSTS}.",
        ),
    ] = None
    client: Annotated[
        list[str] | None,
        typer.Option("--client", metavar="NAME", help="A client with a certificate of its own; repeatable."),
    ] = None
    days: Annotated[
        int, typer.Option("--days", min=1, max=AUTHORITY_DAYS, help="How long certificates are valid.")
    ] = CERTIFICATE_DAYS

    def nodes(self) -> dict[str, list[str]]:
        """All names of each node by its first one. Without --host and --client: this machine."""
        given = self.host or ([] if self.client else [_DEFAULT_HOSTS])
        nodes = [[name.strip() for name in text.split(",") if name.strip()] for text in given]
        for names in nodes:
            for name in names or [""]:
                _check_host(name)
        return {names[0]: _with_loopback(names) for names in nodes}

    def clients(self) -> list[str]:
        for name in self.client or ():
            if _CLIENT.fullmatch(name) is None:
                raise typer.BadParameter(
                    f"{name!r}: use letters, digits, '.', '_', '@' and '-'", param_hint="--client"
                )
        return list(dict.fromkeys(self.client or ()))


@app.command()
@takes_options
def make(*, options: MakeOptions, yes: Yes = False, as_json: Json = False) -> None:
    """Make certificates for nodes and clients, signed by an authority in the same folder.

    The first call makes the authority, later ones use it: keep its ca.key safe. Everything is in
    PEM, keys are ECDSA P-256. Beside each certificate are settings that name it:
    server.properties for a node, client.properties (for Java clients and --command-config) and
    librdkafka.conf for a client.

    \b
    Examples:
      headrace certs make --out certs
      headrace certs make --out certs --host b1.example.com,10.0.0.1 --host b2.example.com,10.0.0.2
      headrace certs make --out certs --client ann --client billing --days 90
    """
    nodes, clients = options.nodes(), options.clients()
    need_cryptography()
    from headrace.cli.certs.folder import CertificateFolder

    folder = CertificateFolder(options.out)
    _confirm_replacing(folder, nodes, clients, yes=yes)
    authority, is_new = open_authority(folder, options.days)
    for host, names in nodes.items():
        folder.save_node(host, authority.node(names, options.days))
    for name in clients:
        folder.save_client(name, authority.client(name, options.days))
    _report(Output(as_json=as_json), folder, nodes, clients, new_authority=is_new)


def _confirm_replacing(
    folder: CertificateFolder, nodes: dict[str, list[str]], clients: list[str], *, yes: bool
) -> None:
    paths = [*(folder.node(host) for host in nodes), *(folder.client(name) for name in clients)]
    there = [str(path) for path in paths if path.exists()]
    if there:
        confirm(f"replace the certificates and keys in {', '.join(there)}", yes=yes)


def _report(
    output: Output,
    folder: CertificateFolder,
    nodes: dict[str, list[str]],
    clients: list[str],
    *,
    new_authority: bool,
) -> None:
    made: dict[str, Any] = {
        "authority": str(folder.path / "ca.pem"),
        "new_authority": new_authority,
        "nodes": {host: str(folder.node(host)) for host in nodes},
        "clients": {name: str(folder.client(name)) for name in clients},
    }
    if output.as_json:
        output.document(made)
        return
    output.line(f"{'New authority' if new_authority else 'Authority'}: {made['authority']}")
    for host, names in nodes.items():
        output.line(f"Node {', '.join(names)}: {folder.node(host)}")
    for name in clients:
        output.line(f"Client {name}: {folder.client(name)}")


def _check_host(name: str) -> None:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        if _HOST.fullmatch(name) is None or len(name) > 253:
            raise typer.BadParameter(
                f"{name!r} is not a host name or an address", param_hint="--host"
            ) from None
