# SPDX-License-Identifier: Apache-2.0
"""Sums over all machines of a driver, kept up to date by every step.

A partition may have a hundred thousand machines, and a scrape of the metrics must not visit them all.
Read next: machine_driver.py, transactions/coordinator.py (what is summed).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

M = TypeVar("M")

Measures = tuple[tuple[str, int], ...]
"""What one machine adds to each sum. A machine that holds nothing adds nothing."""
Measure = Callable[[M], Measures]


class MachineSums(Generic[M]):
    __slots__ = ("_measure", "values")

    def __init__(self, measure: Measure[M] | None, machines: Iterable[M] = ()) -> None:
        """`measure` None: nothing is summed."""
        self.values: Counter[str] = Counter()
        """To read only."""
        self._measure = measure
        if measure is not None:  # most machines of a large number are alike
            for measures, count in Counter(map(measure, machines)).items():
                self._replace((), tuple((name, count * amount) for name, amount in measures))

    def of(self, machine: M) -> Measures:
        """To be given to `update` when the machine has changed."""
        return () if self._measure is None else self._measure(machine)

    def update(self, before: Measures, machine: M) -> None:
        if self._measure is not None:
            after = self._measure(machine)
            if after != before:
                self._replace(before, after)

    def _replace(self, before: Measures, after: Measures) -> None:
        values = self.values
        for name, amount in before:
            values[name] -= amount
        for name, amount in after:
            values[name] += amount
