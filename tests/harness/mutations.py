# SPDX-License-Identifier: Apache-2.0
"""Mutations (T3): removes one rule from the code at import; a simulation, model or test must then fail.

A mutation is a small file: the module, the text that keeps the rule, the text without it. No switch that
weakens a rule exists in the product. `python -m tests.harness.mutations FILE SEEDS PROOF` runs the schedules
and seeds of a proof, a module of tests/harness, until one fails. `mutated_processes/sitecustomize.py` removes
the rule in a test and in all processes that it starts. Read next: mutation_coverage.py.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, ModuleType

from tests.harness.simulation.seeds import root_of


class StaleMutation(Exception):
    """The text that keeps the rule is no longer in the module: the mutation has to follow the code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    rule: str
    why: str
    module: str
    before: str
    after: str
    proof: str = ""
    """The module of tests/harness whose runs notice it; empty: those of its folder (mutation_coverage.py)."""
    test: str = ""
    """The test that notices it, where no simulated run can: of processes, files and sockets."""

    def apply(self, source: str) -> str:
        if source.count(self.before) != 1:
            raise StaleMutation(
                f"{self.rule}: {self.module} holds the text {source.count(self.before)} times"
            )
        return source.replace(self.before, self.after)


def load_mutation(path: Path) -> Mutation:
    return Mutation(**tomllib.loads(path.read_text()))


def check_fresh(mutation: Mutation) -> None:
    """Raises StaleMutation; imports nothing."""
    spec = importlib.util.find_spec(mutation.module)
    if spec is None or spec.origin is None:
        raise StaleMutation(f"{mutation.rule}: there is no module {mutation.module}")
    compile(mutation.apply(Path(spec.origin).read_text()), spec.origin, "exec")


class _MutatingLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, mutation: Mutation, path: str) -> None:
        super().__init__(mutation.module, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        source = self._mutation.apply(Path(self.path).read_text())
        return self.source_to_code(source.encode(), self.path)


class MutatingFinder(importlib.abc.MetaPathFinder):
    def __init__(self, mutation: Mutation) -> None:
        self.applied = False
        self._mutation = mutation

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._mutation.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        self.applied = True
        return importlib.util.spec_from_loader(fullname, _MutatingLoader(self._mutation, spec.origin))


def install(mutation: Mutation) -> MutatingFinder:
    """Before the module is imported."""
    finder = MutatingFinder(mutation)
    sys.meta_path.insert(0, finder)
    return finder


def main(path: str, seeds: str, proof: str, until: str = "first", budget_s: str = "inf") -> int:
    """0: noticed; 3: survived; 4: the proof does not import the module.

    `until` "all" goes on after a failure, and begins no seed when `budget_s` of processor time are used.
    """
    mutation = load_mutation(Path(path))
    finder = install(mutation)
    module = importlib.import_module(f"tests.harness.{proof}")
    if not finder.applied:
        print(f"{mutation.module} is not part of {proof}")
        return 4
    logging.disable(logging.CRITICAL)
    noticed = False
    for name, run in _runs(module, int(seeds)):
        if name.startswith("seed ") and time.process_time() > float(budget_s):
            break
        try:
            run()
            print(f"passed {name}", flush=True)
        except Exception as error:  # noqa: BLE001 - whatever it is, the mutation was noticed
            print(f"noticed by {name}: {root_of(error)!r}", flush=True)
            noticed = True
            if until == "first":
                return 0
    return 0 if noticed else 3


def _runs(module: ModuleType, seeds: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Schedules written by hand first, then seeds that once failed, where a proof has some."""
    for scenario in getattr(module, "SCENARIOS", ()):
        yield scenario.__name__, scenario
    for seed in dict.fromkeys((*getattr(module, "KNOWN_SEEDS", ()), *range(seeds))):
        yield f"seed {seed}", partial(module.run_seed, seed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
