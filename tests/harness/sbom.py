# SPDX-License-Identifier: Apache-2.0
"""Writes the list of components (SBOM, CycloneDX 1.6) of a lock file: `make sbom`.

    python -m tests.harness.sbom requirements.lock build/sbom.json

The same lock gives the same bytes. Read next: lock_hashes.py.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

from tests.harness.lock_hashes import Pin, read_lock

ROOT = Path(__file__).resolve().parents[2]


def document(pins: list[Pin], version: str) -> dict[str, Any]:
    root = {"type": "application", "bom-ref": f"pkg:pypi/headrace@{version}", "name": "headrace"}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**root, "version": version, "purl": root["bom-ref"]}},
        "components": [_component(pin) for pin in sorted(pins, key=lambda each: each.normal_name)],
    }


def _component(pin: Pin) -> dict[str, Any]:
    purl = f"pkg:pypi/{pin.normal_name}@{pin.version}"
    return {"type": "library", "bom-ref": purl, "name": pin.normal_name, "version": pin.version, "purl": purl}


def main(lock: Path, target: Path) -> None:
    version = runpy.run_path(str(ROOT / "src/headrace/version.py"))["__version__"]
    target.parent.mkdir(parents=True, exist_ok=True)
    pins = list(read_lock(lock.read_text()))
    target.write_text(json.dumps(document(pins, version), indent=2) + "\n")
    print(f"{target}: {len(pins)} components")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
