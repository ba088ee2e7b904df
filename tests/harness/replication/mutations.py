# SPDX-License-Identifier: Apache-2.0
"""Runs the replication scenarios and model with one rule taken out of the machines (T3), in this process.

The machines and the model are imported anew under the mutation, and the sound ones put back after it.
Read next: mutations.py (the files), model.py.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType

from tests.harness.mutations import MutatingFinder, Mutation

_MODEL = "tests.harness.replication.model"
_MACHINES = ("leader", "follower", "isr", "election")
_SCENARIOS = "tests.harness.replication.scenarios"
_REIMPORTED = (*(f"headrace.machines.replication.{name}" for name in _MACHINES), _MODEL, _SCENARIOS)


@contextmanager
def _under(mutation: Mutation) -> Iterator[tuple[ModuleType, ModuleType]]:
    sound = {name: importlib.import_module(name) for name in _REIMPORTED}
    finder = MutatingFinder(mutation)
    sys.meta_path.insert(0, finder)
    try:
        for name in _REIMPORTED:
            package, _, attribute = name.rpartition(".")
            del sys.modules[name]
            delattr(sys.modules[package], attribute)
        scenarios, model = importlib.import_module(_SCENARIOS), importlib.import_module(_MODEL)
        assert finder.applied, f"{mutation.module} is not part of the model"
        yield scenarios, model
    finally:
        sys.meta_path.remove(finder)
        for name, module in sound.items():
            sys.modules[name] = module
            package, _, attribute = name.rpartition(".")
            setattr(sys.modules[package], attribute, module)


def caught_by(mutation: Mutation, seeds: int) -> str | None:
    """The scenario or first seed that notices; None when the mutation survives."""
    with _under(mutation) as (scenarios, model):
        for scenario in scenarios.SCENARIOS:
            if _fails(scenario):
                return str(scenario.__name__)
        return next((f"seed {seed}" for seed in range(seeds) if _fails(partial(model.run_seed, seed))), None)


def _fails(run: Callable[[], object]) -> bool:
    try:
        run()
    except Exception:  # noqa: BLE001 - whatever it is, the mutation was noticed
        return True
    return False
