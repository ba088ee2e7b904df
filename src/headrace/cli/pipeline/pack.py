# SPDX-License-Identifier: Apache-2.0
"""`headrace pipeline pack`: packs Headrace into one file for the executors of a Spark cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import Json
from headrace.cli.output import Output, human_bytes

OutPath = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Output file.  [default: headrace-pack-PYTHON-PLATFORM.zip]"),
]
Further = Annotated[
    list[str] | None,
    typer.Option("--add", metavar="PACKAGE", help="Add this package and its dependencies; repeatable."),
]


def pack(out: OutPath = None, add: Further = None, as_json: Json = False) -> None:
    """Pack Headrace for a Spark cluster whose machines have only Python and Spark.

    The file has Headrace and its dependencies from this environment. It works on machines with the same
    Python version and platform.

    \b
    Examples:
      headrace pipeline pack
      headrace pipeline pack --out /shared/pack.zip --add fastavro
    """
    from headrace.pipelines.spark_session.pack import default_pack_path, write_pack

    written = write_pack(out or default_pack_path(), add=add or ())
    output = Output(as_json=as_json)
    if as_json:
        output.document(
            {
                "path": str(written.path),
                "python": written.python,
                "platform": written.platform,
                "bytes": written.size,
                "packages": dict(sorted(written.distributions.items())),
            }
        )
        return
    output.line(
        f"Packed {len(written.distributions)} packages into {written.path} ({human_bytes(written.size)}), "
        f"for Python {written.python} on {written.platform}."
    )
    output.line(f'Use it: spark_session("spark://HOST:7077", pack="{written.path}")')
