# SPDX-License-Identifier: Apache-2.0
"""The page of the Python API: the public names of `headrace` and `headrace.testing`, for mkdocstrings."""

from __future__ import annotations

import inspect

import headrace
import headrace.testing

_HEAD = """\
# Python API

What `import headrace` offers, from its docstrings. Guides: [topics as Arrow tables](../arrow.md),
[transactions](../transactions.md), [a broker in your tests](../test-broker.md).

"""


def public_names() -> list[str]:
    """Functions, classes and exceptions in the order of the alphabet, whatever their case."""
    found = [name for name in dir(headrace) if not name.startswith("_") and _is_ours(getattr(headrace, name))]
    return sorted(found, key=str.lower)


def page() -> str:
    names = [f"headrace.{name}" for name in public_names()]
    names += [f"headrace.testing.{name}" for name in headrace.testing.__all__]
    return _HEAD + "\n".join(f"::: {name}\n" for name in names)


def _is_ours(value: object) -> bool:
    return (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("headrace.")
