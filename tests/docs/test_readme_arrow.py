"""What the README says of tables runs, `import headrace` is quick, and a missing extra is named."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.harness.live.node import NodeProcess

README = (Path(__file__).parents[2] / "README.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
MOST_S = 0.05


def run_python(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_readmes_table_is_read(node: NodeProcess) -> None:
    (example,) = [each for each in EXAMPLES if "headrace.read(" in each]
    producer = Producer({"bootstrap.servers": node.bootstrap, "allow.auto.create.topics": True})
    producer.produce("orders", key="user-1", value="tea")
    assert producer.flush(30) == 0
    scope: dict[str, Any] = {}
    exec(compile(example.replace("127.0.0.1:9092", node.bootstrap), "README.md", "exec"), scope)
    orders = scope["orders"]
    assert orders.column_names == ["key", "value", "timestamp"]
    assert b"tea" in scope["recent"]["value"].to_list()
    assert {"key": b"user-1", "value": b"tea"} in orders.select(["key", "value"]).to_pylist()


def test_importing_headrace_is_quick() -> None:
    """By its own CPU time, the least of several: other work on the machine is not its fault."""
    program = "import time; begin = time.process_time(); import headrace; print(time.process_time() - begin)"
    assert min(float(run_python(program)) for _ in range(5)) <= MOST_S


@pytest.mark.parametrize(
    ("call", "library"),
    [
        ("read('orders')", "pyarrow"),
        ("write([], 'orders')", "numpy"),
        ("topic('orders')", "pyarrow"),
        ("stream('orders')", "numpy"),
        ("Json()", "pyarrow"),
    ],
)
def test_without_the_extra_every_name_says_what_to_install(call: str, library: str) -> None:
    program = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "import headrace\n"
        f"try: headrace.{call}\n"
        "except ImportError as error: print(error)"
    )
    name = call.partition("(")[0]
    assert run_python(program) == f"headrace.{name} needs {library}: pip install headrace[arrow]\n"
