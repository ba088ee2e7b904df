# SPDX-License-Identifier: Apache-2.0
"""The scrapes of several cores as one: each sample gets the label `core`, each family stands once.

Pure functions over the text format of Prometheus. Read next: cores_endpoint.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_COMMENTS = ("# HELP ", "# TYPE ")
_LABEL = "core"


@dataclass(slots=True)
class _Merged:
    """One family: its help and type from the first core that has it, and the samples of all."""

    comments: dict[str, str] = field(default_factory=dict)
    samples: list[str] = field(default_factory=list)


def merge_scrapes(scrapes: Mapping[int, str]) -> str:
    """`scrapes`: the text of each core by its index. Families keep the order of the first core."""
    families: dict[str, _Merged] = {}
    for core, text in scrapes.items():
        family = families.setdefault("", _Merged())
        for line in text.splitlines():
            kind = line[: len(_COMMENTS[0])]
            if kind in _COMMENTS:
                name = line[len(kind) :].partition(" ")[0]
                family = families.setdefault(name, _Merged())
                family.comments.setdefault(kind, line)
            elif line and not line.startswith("#"):
                family.samples.append(_labelled(line, core))
    lines = (line for each in families.values() for line in (*each.comments.values(), *each.samples))
    return "".join(f"{line}\n" for line in lines)


def _labelled(sample: str, core: int) -> str:
    """The sample with the label of its core before those that it has."""
    end_of_name = sample.index(" ")
    brace = sample.find("{", 0, end_of_name)
    label = f'{_LABEL}="{core}"'
    if brace < 0:
        return f"{sample[:end_of_name]}{{{label}}}{sample[end_of_name:]}"
    return f"{sample[: brace + 1]}{label},{sample[brace + 1 :]}"


def family_text(
    name: str, kind: str, help_text: str, samples: Iterable[tuple[Mapping[str, object], int]]
) -> str:
    """A family of the supervisor's own."""
    lines = [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        shown = ",".join(f'{label}="{given}"' for label, given in labels.items())
        lines.append(f"{name}{{{shown}}} {value}")
    return "".join(f"{line}\n" for line in lines)
