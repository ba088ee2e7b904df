# SPDX-License-Identifier: Apache-2.0
"""Asks the advisory service about every version of a lock file, by pip-audit: `make audit`.

    python -m tests.harness.audit build/audit/bin/pip-audit requirements.lock

Fails when there is an advisory. Packages that the service gave no answer about are named as not audited,
without an error, so that a build without a network goes on. pip-audit alone would say that none is known.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def advisories(report: dict[str, Any]) -> list[str]:
    """A line for each advisory of pip-audit's report."""
    return [
        f"{found['name']} {found['version']}: {advisory['id']}, fixed in "
        f"{', '.join(advisory['fix_versions']) or 'no version'}"
        for found in report["dependencies"]
        for advisory in found.get("vulns", ())
    ]


def not_audited(report: dict[str, Any]) -> list[str]:
    """Packages that pip-audit left out, for example because the service could not be reached."""
    return [found["name"] for found in report["dependencies"] if "skip_reason" in found]


def audit(program: str, lock: Path) -> int:
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.json"
        arguments = ["--disable-pip", "--require-hashes", "--progress-spinner", "off", "--timeout", "15"]
        arguments += ["--format", "json", "--output", str(report), "--requirement", str(lock)]
        try:
            ended = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
        except OSError as error:
            return _not_audited(f"{program} cannot be run ({error.strerror})")
        if not report.exists() or not report.read_text().strip():
            said = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
            return _not_audited(f"pip-audit got no answer of the advisory service: {said[-1]}")
        found = json.loads(report.read_text())
    return _told(found)


def _told(report: dict[str, Any]) -> int:
    lines, skipped, count = advisories(report), not_audited(report), len(report["dependencies"])
    if lines:
        print("\n".join(lines))
    elif len(skipped) < count:
        print(f"no advisory for {count - len(skipped)} packages")
    if skipped:
        _not_audited(f"no answer about {len(skipped)} of {count} packages: {', '.join(skipped)}")
    return 1 if lines else 0


def _not_audited(reason: str) -> int:
    print(f"NOT AUDITED: {reason}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(audit(sys.argv[1], Path(sys.argv[2])))
