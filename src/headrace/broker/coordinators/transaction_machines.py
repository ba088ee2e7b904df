# SPDX-License-Identifier: Apache-2.0
"""Which machines have records of an open transaction, by producer.

A transaction marker concerns the machines that its transaction wrote to, and a partition may have many
thousands. The same fold of the log live and at load (R33). Read next: machine_driver.py, machine_loading.py.
"""

from __future__ import annotations


class TransactionMachines:
    def __init__(self) -> None:
        self._names: dict[int, dict[str, None]] = {}
        """By producer id; in the order of their first records, so that a marker has the same effect on
        every node."""

    def __len__(self) -> int:
        return len(self._names)

    def add(self, producer_id: int, name: str) -> None:
        """The machine has a record in the producer's transaction."""
        self._names.setdefault(producer_id, {})[name] = None

    def end(self, producer_id: int) -> list[str]:
        """A marker was written: the machines that it concerns. None for a producer without a transaction."""
        return list(self._names.pop(producer_id, ()))
