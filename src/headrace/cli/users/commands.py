# SPDX-License-Identifier: Apache-2.0
"""`headrace users`: users that log in by a password, of a running cluster or in the coordination store.

Parses arguments and prints results. Read next: directory.py (where the users are), password.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.option_sets import takes_options
from headrace.cli.options import HELP_STYLE, ConnectOptions, Json, Yes, confirm
from headrace.cli.output import Output
from headrace.scram_credential import DEFAULT_ITERATIONS, FEWEST_ITERATIONS, MOST_ITERATIONS

if TYPE_CHECKING:
    from headrace.cli.users.directory import UserDirectory

app = typer.Typer(
    help="Users that log in by a password (SCRAM).", no_args_is_help=True, rich_markup_mode=HELP_STYLE
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="User name.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", "-d", metavar="DIR", help="Data directory of a node, which need not run."),
]
Coordination = Annotated[
    str | None,
    typer.Option(
        "--coordination",
        metavar="sqlite:DIR|zk://HOST:PORT,…/PATH",
        help="Coordination store of a cluster, which need not run.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Properties file of a node, which need not run."),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="File with the password in one line. Default: the variable HEADRACE_PASSWORD, or a prompt.",
    ),
]
Iterations = Annotated[
    int,
    typer.Option(
        "--iterations", min=FEWEST_ITERATIONS, max=MOST_ITERATIONS, help="Of the key derivation (PBKDF2)."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhereOptions:
    """Where the users are, if not in the cluster that the command connects to."""

    data: Data = None
    coordination: Coordination = None
    config: Config = None

    def directory(self, connect: ConnectOptions) -> UserDirectory:
        from headrace.cli.users.directory import user_directory

        return user_directory(self.data, self.coordination, self.config, connect.cluster)


@app.command("add")
@takes_options
def add(
    *,
    name: Name,
    password_file: PasswordFile = None,
    iterations: Iterations = DEFAULT_ITERATIONS,
    where: WhereOptions,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Add a user. With --data or --coordination before any node runs: the first user of a cluster.

    \b
    Examples:
      headrace users add ann --data /srv/headrace
      headrace users add ann --coordination zk://h1:2181,h2:2181/headrace --password-file ann.txt
      headrace users add bob --bootstrap localhost:9092
    """
    _set_password(name, password_file, iterations, where.directory(connect), new=True)
    _report({"added": name}, f"Added user {name}.", as_json=as_json)


@app.command("password")
@takes_options
def password(
    *,
    name: Name,
    password_file: PasswordFile = None,
    iterations: Iterations = DEFAULT_ITERATIONS,
    where: WhereOptions,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Change the password of a user. Connections that are logged in stay so.

    \b
    Examples:
      headrace users password ann
      headrace users password ann --data /srv/headrace --password-file ann.txt
    """
    _set_password(name, password_file, iterations, where.directory(connect), new=False)
    _report({"changed": name}, f"Changed the password of user {name}.", as_json=as_json)


@app.command("list")
@takes_options
def list_(
    *,
    where: WhereOptions,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """List the users and the mechanisms by which they can log in.

    \b
    Examples:
      headrace users list
      headrace users list --data /srv/headrace --json
    """
    output = Output(as_json=as_json)
    users = where.directory(connect).all()
    if as_json:
        output.document([{"name": name, "mechanisms": dict(users[name])} for name in sorted(users)])
        return
    output.table(("USER", "MECHANISMS"), [(name, ", ".join(sorted(users[name]))) for name in sorted(users)])


@app.command("remove")
@takes_options
def remove(
    *,
    name: Name,
    where: WhereOptions,
    connect: ConnectOptions,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Remove a user. Connections that are logged in stay so.

    \b
    Examples:
      headrace users remove ann
      headrace users remove ann --data /srv/headrace --yes
    """
    directory = where.directory(connect)
    confirm(f"remove user {name}", yes=yes)
    directory.remove(name)
    _report({"removed": name}, f"Removed user {name}.", as_json=as_json)


def _report(document: dict[str, str], line: str, *, as_json: bool) -> None:
    output = Output(as_json=as_json)
    if as_json:
        output.document(document)
    else:
        output.line(line)


def _set_password(
    name: str, file: Path | None, iterations: int, directory: UserDirectory, *, new: bool
) -> None:
    from headrace.cli.users.password import read_password

    directory.set_password(name, read_password(file), iterations, new=new)
