# SPDX-License-Identifier: Apache-2.0
"""`headrace pipeline new`: creates a project with a pipeline and its tests.

Read next: pipelines/project.py, and what it creates: pipelines/project_template.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import Json
from headrace.cli.output import Output
from headrace.client.errors import ClientError


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the Python package: lower-case, like order_totals.")
    ],
    directory: Annotated[
        Path | None,
        typer.Option("--dir", "-d", metavar="DIR", help="Directory of the project.  [default: NAME]"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a project with a pipeline of your own, and tests on a broker in their process.

    The directory must be new or empty. The project has a pyproject.toml, a pipeline, a command that runs it,
    and tests that pass as they are.

    \b
    Examples:
      headrace pipeline new order_totals
      headrace pipeline new order_totals --dir ~/projects/totals
    """
    from headrace.pipelines.project import check_name, create_project

    try:
        check_name(name)
    except ClientError as error:
        raise typer.BadParameter(str(error), param_hint="NAME") from None
    folder = (directory or Path(name)).expanduser()
    files = create_project(name, folder)
    output = Output(as_json=as_json)
    if as_json:
        output.document({"project": str(folder), "files": [str(path) for path in files]})
        return
    for path in files:
        output.line(f"{folder / path}")
    output.note(f"Test it: cd {folder} && pytest")
    output.note(f"Change {folder}/src/{name}/pipeline.py; {folder}/README.md says how to run it.")
