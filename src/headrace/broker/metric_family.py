"""What a metric is: name, kind, help, labels, and how it is read. Read next: metrics_export.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from headrace.broker.metrics import Metrics

Sample = tuple[Sequence[str], Any]
"""Label values, and a number or a histogram."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    read: Callable[[Metrics], Iterable[Sample]]
