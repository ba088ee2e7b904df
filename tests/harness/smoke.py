# SPDX-License-Identifier: Apache-2.0
"""Starts a node of the installed Headrace, produces and consumes: `python -P tests/harness/smoke.py`.

On any platform, with the standard library only. It imports nothing of the source tree: the wheel is tested.
"""

from __future__ import annotations

import json
import subprocess
import sys

COMMAND = (sys.executable, "-P", "-m", "headrace")
RECORDS = [f"record {number}" for number in range(10)]
TIMEOUT_S = 60


def run(*arguments: str, text: str = "") -> str:
    """What the command prints; raises CalledProcessError when it fails."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        input=text, stdout=subprocess.PIPE, encoding="utf-8", timeout=TIMEOUT_S, check=True,
    )  # fmt: skip
    return done.stdout


def produce_and_consume(bootstrap: str) -> None:
    run("topics", "create", "smoke", "--bootstrap", bootstrap)
    run("produce", "smoke", "--bootstrap", bootstrap, text="".join(f"{line}\n" for line in RECORDS))
    consumed = run("consume", "smoke", "--exit-at-end", "--bootstrap", bootstrap).splitlines()
    if sorted(consumed) != sorted(RECORDS):
        raise SystemExit(f"produced {RECORDS}, consumed {consumed}")


def main() -> None:
    version = json.loads(run("version", "--json"))
    node = subprocess.Popen(
        [*COMMAND, "serve", "--ephemeral", "--json"], stdout=subprocess.PIPE, encoding="utf-8"
    )
    try:
        assert node.stdout is not None
        ready = json.loads(node.stdout.readline())
        (bootstrap,) = ready["listeners"].values()
        produce_and_consume(bootstrap)
    finally:
        node.terminate()
        node.communicate(timeout=TIMEOUT_S)
    print(f"Headrace {version['headrace']} on Python {version['python']}: {len(RECORDS)} records came back")


if __name__ == "__main__":
    main()
