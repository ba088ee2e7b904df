# SPDX-License-Identifier: Apache-2.0
"""Spark imports every package named pyspark_* to find formats, and finds none when one import fails."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys

for name in ("numpy", "pandas", "pyarrow", "deltalake", "packaging"):
    sys.modules[name] = None  # as if it were not installed
import pyspark_headrace, pyspark_headrace_delta

print(pyspark_headrace.DefaultSource.name(), pyspark_headrace_delta.DefaultSource.name())
for use in (
    lambda: pyspark_headrace.DefaultSource({"subscribe": "orders"}).reader(None),
    lambda: pyspark_headrace.DefaultSource({"topic": "orders"}).writer(None, False),
    lambda: pyspark_headrace_delta.DefaultSource({"path": "/tmp"}).streamWriter(None, False),
):
    try:
        use()
    except Exception as error:
        print(error)
"""


def test_formats_are_found_without_optional_dependencies() -> None:
    """What is missing is said by who needs it."""
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    found, *said = ran.stdout.splitlines()
    assert found == "headrace headrace_delta"
    missing = "{} is not installed; pip install headrace[spark]"
    assert said == [missing.format(name) for name in ("numpy", "numpy", "deltalake")]
