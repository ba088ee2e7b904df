# SPDX-License-Identifier: Apache-2.0
"""Which rules of docs/design/reliability.md are noticed when they are removed, by what, and how often (T3).

`python -m tests.harness.mutation_coverage run SEEDS [WORD]` holds all schedules and so many seeds against
each patch whose name has the word, and adds a line for each to build/soak/T3-coverage.jsonl. Patches that
have one are left out: an interrupted run goes on. `... table [PAGE]` writes the rows between the marks of the
page; a row that was not measured here stays as the page has it. Read next: mutations.py.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path

from tests.harness import soak
from tests.harness.mutations import Mutation, load_mutation

_ROOT = Path(__file__).parents[2]
PATCHES = _ROOT / "tests" / "simulation" / "mutations"
_RULES = _ROOT / "docs" / "design" / "reliability.md"
_IN_PROCESSES = _ROOT / "tests" / "harness" / "mutated_processes"
RESULTS = soak.REPORTS / "T3-coverage.jsonl"
PAGE = _ROOT / "docs" / "evidence" / "rules.md"
BEGIN = "<!-- table: written by tests.harness.mutation_coverage -->"
END = "<!-- end of table -->"
NOT_MEASURED = "not measured"
_MODEL_SEEDS = 30
"""Times as many seeds of a model, each of which takes milliseconds."""
_BUDGET_S = 25.0
"""No seed begins after so much processor time for one patch and proof: some patches make runs very long."""
_HUNG = 20
"""Times the budget by the wall clock: then the run is ended, and what it had found counts."""
PROOFS = {
    "": ("simulation.one_node",),
    "cluster": ("simulation.cluster_proof",),
    "replication": ("replication.proof", "simulation.cluster_proof"),
    "damage": ("simulation.damaged_files",),
    "mixed": ("simulation.mixed.proof",),
    "repair": ("simulation.repair_model",),
    "slow": ("simulation.slow_nodes",),
    "transactions": ("simulation.transactions.proof",),
}
"""By folder of patches. Those of the folder `processes` name a test instead."""
_MODELS = {"replication.proof", "simulation.repair_model", "simulation.transactions.compaction"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """What one proof noticed of one patch."""

    proof: str
    schedules: tuple[str, ...] = ()
    seeds: int = 0
    by_seeds: int = 0

    def __str__(self) -> str:
        """Empty when nothing noticed it."""
        if self.proof.startswith("tests/"):
            return f"test `{self.proof.rpartition('::')[2]}` (`{self.proof.partition('::')[0]}`)"
        others = f" and {len(self.schedules) - 1} more" if len(self.schedules) > 1 else ""
        found = [f"schedule `{self.schedules[0]}`{others}"] if self.schedules else []
        if self.by_seeds or (self.schedules and self.seeds):
            kind = "seeds of the model" if self.proof in _MODELS else "seeds"
            found.append(f"{self.by_seeds} of {self.seeds} {kind}")
        return ", ".join(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    patch: str
    digest: str
    commit: str
    noticed: tuple[Noticed, ...]

    def __str__(self) -> str:
        seeds = sum(each.seeds for each in self.noticed)
        return "; ".join(filter(None, map(str, self.noticed))) or f"nothing: none of {seeds} seeds"


def patches(word: str = "") -> list[str]:
    names = (str(path.relative_to(PATCHES).with_suffix("")) for path in PATCHES.rglob("*.toml"))
    return sorted(name for name in names if word in name)


def path_of(patch: str) -> Path:
    return PATCHES / f"{patch}.toml"


def proofs_of(patch: str) -> tuple[str, ...]:
    own = load_mutation(path_of(patch)).proof
    return (own,) if own else PROOFS.get(patch.rpartition("/")[0], ())


def run_proof(patch: str, proof: str, *arguments: str, timeout_s: float | None = None) -> tuple[int, str]:
    """In a process of its own, since the patch is applied at import. Arguments: of mutations.py."""
    seeds, *rest = arguments
    command = [sys.executable, "-m", "tests.harness.mutations", str(path_of(patch)), seeds, proof, *rest]
    try:
        done = subprocess.run(
            command, cwd=_ROOT, capture_output=True, text=True, check=False, timeout=timeout_s
        )
    except subprocess.TimeoutExpired as late:
        return 0, (late.stdout or b"").decode()
    return done.returncode, done.stdout + done.stderr


def fails_without(mutation: Mutation, path: Path) -> bool:
    """Whether the test of a patch fails when the rule is removed in all its processes."""
    folders = (str(_IN_PROCESSES), str(_ROOT), os.environ.get("PYTHONPATH", ""))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, folders)),
        "HEADRACE_MUTATION": str(path),
    }
    # Rewritten assertions need an importer of pytest's, which would come before the one of the mutation.
    command = [sys.executable, "-m", "pytest", "--assert=plain", "-x", "-q", "-n", "0", mutation.test]
    done = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False)
    failed = re.search(r"^1 failed", done.stdout, flags=re.MULTILINE) is not None
    if not failed and done.returncode:
        raise RuntimeError(f"{mutation.test}: {done.stdout}{done.stderr}")
    return failed


def measure(patch: str, seeds: int) -> Result:
    path = path_of(patch)
    mutation = load_mutation(path)
    if mutation.test:
        noticed = tuple(Noticed(proof=mutation.test) for _ in range(fails_without(mutation, path)))
    else:
        noticed = tuple(_measure(patch, proof, seeds) for proof in proofs_of(patch))
    return Result(patch=patch, digest=_digest(path), commit=soak.commit(), noticed=noticed)


def _measure(patch: str, proof: str, seeds: int) -> Noticed:
    asked = seeds * _MODEL_SEEDS if proof in _MODELS else seeds
    timeout_s = _HUNG * _BUDGET_S
    code, told = run_proof(patch, proof, str(asked), "all", str(_BUDGET_S), timeout_s=timeout_s)
    if code not in (0, 3):
        raise RuntimeError(f"{patch}: {told}")
    runs = re.findall(r"^(noticed by|passed) (seed )?(\w+)", told, flags=re.MULTILINE)
    seeds_run = [outcome for outcome, is_seed, _ in runs if is_seed]
    return Noticed(
        proof=proof,
        schedules=tuple(name for outcome, is_seed, name in runs if not is_seed and outcome == "noticed by"),
        seeds=len(seeds_run),
        by_seeds=seeds_run.count("noticed by"),
    )


def _digest(path: Path) -> str:
    return blake2b(path.read_bytes(), digest_size=8).hexdigest()


def known() -> dict[str, Result]:
    """The last line of each patch that is still the same."""
    if not RESULTS.exists():
        return {}
    found = {}
    for line in map(json.loads, RESULTS.read_text().splitlines()):
        path = path_of(line["patch"])
        if path.exists() and _digest(path) == line["digest"]:
            noticed = (Noticed(**{**each, "schedules": tuple(each["schedules"])}) for each in line["noticed"])
            found[line["patch"]] = Result(**{**line, "noticed": tuple(noticed)})
    return found


def rules() -> list[str]:
    return re.findall(r"^### (R\d+[a-z]?):", _RULES.read_text(), flags=re.MULTILINE)


def table(found: Mapping[str, Result], page: str) -> Iterator[str]:
    """A row for each patch in the order of the rules, and one for each rule that no patch removes."""
    by_rule: dict[str, list[tuple[str, Mutation]]] = {rule: [] for rule in rules()}
    for patch in patches():
        mutation = load_mutation(path_of(patch))
        by_rule[mutation.rule].append((patch, mutation))
    before = {line.rpartition(" | ")[0]: line for line in page.splitlines()}
    yield "| rule | patch | what it does | noticed by |"
    yield "|---|---|---|---|"
    for rule, removals in by_rule.items():
        for patch, mutation in removals:
            begin = f"| {rule} | `{patch}` | {mutation.why}"
            told = before.get(begin, f"{begin} | {NOT_MEASURED} |")
            yield f"{begin} | {found[patch]} |" if patch in found else told
        if not removals:
            yield f"| {rule} | none | | |"


def with_table(found: Mapping[str, Result], page: str) -> str:
    head, _, rest = page.partition(f"{BEGIN}\n")
    _, _, tail = rest.partition(END)
    rows = "\n".join(table(found, page))
    return f"{head}{BEGIN}\n\n{rows}\n\n{END}{tail}"


def main(action: str, what: str = "", word: str = "") -> None:
    if action == "table":
        page = Path(what or PAGE)
        page.write_text(with_table(known(), page.read_text()))
        return
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    left = [patch for patch in patches(word) if patch not in known()]
    for patch in left:
        result = measure(patch, int(what))
        with RESULTS.open("a") as file:
            file.write(json.dumps(asdict(result)) + "\n")
        print(f"{patch}: {result}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
