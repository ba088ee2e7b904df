# SPDX-License-Identifier: Apache-2.0
"""pyright finds in a user's program what mypy finds in it, which `make lint` runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[1] / "harness/typed_program.py"


def test_pyright_finds_the_same_errors_as_mypy(tmp_path: Path) -> None:
    lines = PROGRAM.read_text().splitlines()
    wrong = {number for number, line in enumerate(lines) if "# type: ignore" in line}
    (tmp_path / "program.py").write_text("\n".join(re.sub(r"  # type: ignore.*", "", line) for line in lines))
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "standard"}))
    program = Path(sys.executable).with_name("basedpyright")
    command = [
        program,
        "--pythonpath",
        sys.executable,
        "--outputjson",
        "-p",
        tmp_path,
        tmp_path / "program.py",
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    found = json.loads(done.stdout)["generalDiagnostics"]
    errors = [each for each in found if each["severity"] == "error"]
    assert {each["range"]["start"]["line"] for each in errors} == wrong, errors
