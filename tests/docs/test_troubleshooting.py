# SPDX-License-Identifier: Apache-2.0
"""Every message of docs/troubleshooting.md exists: in our code, in librdkafka or in Spark."""

from __future__ import annotations

import ast
import re
import zipfile
from importlib.metadata import files
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADINGS = re.findall(r"^### `(.+)`$", (ROOT / "docs/troubleshooting.md").read_text(), flags=re.MULTILINE)


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return node.value if isinstance(node.value, str) else ""


@pytest.fixture(scope="module")
def messages() -> str:
    """All string literals of src, with `…` for what is put into them, then those of the libraries."""
    found: list[str] = []
    for package in ("headrace", "pyspark_headrace", "pyspark_headrace_delta"):
        for path in (ROOT / "src" / package).rglob("*.py"):
            nodes = ast.walk(ast.parse(path.read_text()))
            found += [_text(node) for node in nodes if isinstance(node, ast.Constant | ast.JoinedStr)]
    return "\n".join([*found, _librdkafka(), _spark()])


def _librdkafka() -> str:
    libraries = [
        path for path in files("confluent-kafka") or () if "librdkafka" in path.name or "cimpl" in path.name
    ]
    return "\n".join(Path(str(path.locate())).read_bytes().decode("latin-1") for path in libraries)


def _spark() -> str:
    """Of Spark's own error messages, which a jar has."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    for jar in (Path(spec.origin).parent / "jars").glob("spark-common-utils*.jar"):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.endswith("error-conditions.json"):
                    return archive.read(name).decode()
    return ""


def test_there_are_entries() -> None:
    assert len(HEADINGS) >= 20


@pytest.mark.parametrize("message", HEADINGS)
def test_the_message_of_an_entry_exists(message: str, messages: str) -> None:
    for part in message.split("…"):
        assert part.strip() in messages
