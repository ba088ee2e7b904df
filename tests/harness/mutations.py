# SPDX-License-Identifier: Apache-2.0
"""Mutations (T3): removes one rule from the code at import; the simulation must then fail.

A mutation is a small file: the module, the text that keeps the rule, the text without it. No switch that
weakens a rule exists in the product. `python -m tests.harness.mutations FILE SEEDS SIMULATION` runs until
a scenario or seed fails. Read next: simulation/seeds.py.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import sys
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


def main(path: str, seeds: str, simulation: str = "one_node", until: str = "first") -> int:
    """0: caught; 3: survived. `until` "all" runs every seed, for mutation_coverage.py."""
    mutation = load_mutation(Path(path))
    finder = MutatingFinder(mutation)
    sys.meta_path.insert(0, finder)
    module = importlib.import_module(f"tests.harness.simulation.{simulation}")
    if not finder.applied:
        raise StaleMutation(f"{mutation.module} is not part of the simulation")
    logging.disable(logging.CRITICAL)
    caught = False
    for name, run in _runs(module, int(seeds)):
        try:
            run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the mutation was noticed
            print(f"caught by {name}: {root_of(error)!r}")
            caught = True
            if until == "first":
                break
    if caught:
        return 0
    print(f"survived {seeds} seeds: {mutation.rule}, {mutation.why}")
    return 3


def _runs(module: ModuleType, seeds: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Scenarios written by hand first, where a simulation has some."""
    for scenario in getattr(module, "SCENARIOS", ()):
        yield scenario.__name__, scenario
    for seed in range(seeds):
        yield f"seed {seed}", partial(module.run_seed, seed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
