# SPDX-License-Identifier: Apache-2.0
"""Which rules of docs/design/reliability.md the simulations notice when they are removed, and how often (T3).

`python -m tests.harness.mutation_coverage run SEEDS [WORD]` runs all seeds against each patch whose name has
the word, and adds a line for each to build/soak/T3-coverage.jsonl: a run can be done in pieces. `... table`
prints a row for each rule. Read next: mutations.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.harness import soak
from tests.harness.mutations import load_mutation

_ROOT = Path(__file__).parents[2]
_PATCHES = _ROOT / "tests" / "simulation" / "mutations"
_RULES = _ROOT / "docs" / "design" / "reliability.md"
RESULTS = soak.REPORTS / "T3-coverage.jsonl"
SIMULATION_OF = {
    "": "one_node",
    "cluster": "cluster_proof",
    "replication": "cluster_proof",
    "damage": "damaged_files",
    "mixed": "mixed.cluster",
    "transactions": "transactions.proof",
}
"""By folder of patches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    patch: str
    rule: str
    simulation: str
    commit: str
    seeds: int
    by_seeds: int
    by_schedules: tuple[str, ...]

    def __str__(self) -> str:
        schedules = f", {len(self.by_schedules)} schedules" if self.by_schedules else ""
        return f"`{self.patch}` {self.by_seeds} of {self.seeds}{schedules}"


def patches(word: str = "") -> list[str]:
    names = (str(path.relative_to(_PATCHES).with_suffix("")) for path in _PATCHES.rglob("*.toml"))
    return sorted(name for name in names if word in name)


def measure(patch: str, seeds: int) -> Noticed:
    """In a process of its own, since the patch is applied at import."""
    path = _PATCHES / f"{patch}.toml"
    simulation = SIMULATION_OF[patch.rpartition("/")[0]]
    command = [sys.executable, "-m", "tests.harness.mutations", str(path), str(seeds), simulation, "all"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    noticed = re.findall(r"^caught by ([\w ]+): ", done.stdout, flags=re.MULTILINE)
    if done.returncode not in (0, 3):
        raise RuntimeError(f"{patch}: {done.stderr}")
    by_seeds = sum(name.startswith("seed ") for name in noticed)
    return Noticed(
        patch=patch,
        rule=load_mutation(path).rule,
        simulation=simulation,
        commit=soak.commit(),
        seeds=seeds,
        by_seeds=by_seeds,
        by_schedules=tuple(name for name in noticed if not name.startswith("seed ")),
    )


def known() -> dict[str, Noticed]:
    """The last line of each patch."""
    if not RESULTS.exists():
        return {}
    lines = (json.loads(line) for line in RESULTS.read_text().splitlines())
    return {line["patch"]: Noticed(**{**line, "by_schedules": tuple(line["by_schedules"])}) for line in lines}


def rules() -> list[str]:
    return re.findall(r"^### (R\d+[a-z]?):", _RULES.read_text(), flags=re.MULTILINE)


def table(found: dict[str, Noticed]) -> Iterator[str]:
    """Also the rules that no patch removes, and patches that were not measured."""
    by_rule: dict[str, list[str]] = {rule: [] for rule in rules()}
    for patch in patches():
        rule = load_mutation(_PATCHES / f"{patch}.toml").rule
        by_rule[rule].append(str(found[patch]) if patch in found else f"`{patch}` not measured")
    yield "| rule | noticed by seeds |"
    yield "|---|---|"
    for rule, cells in by_rule.items():
        yield f"| {rule} | {'; '.join(cells) or 'no patch'} |"


def main(action: str, seeds: str = "40", word: str = "") -> None:
    if action == "table":
        print("\n".join(table(known())))
        return
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    for patch in patches(word):
        noticed = measure(patch, int(seeds))
        with RESULTS.open("a") as file:
            file.write(json.dumps(asdict(noticed)) + "\n")
        print(noticed, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
