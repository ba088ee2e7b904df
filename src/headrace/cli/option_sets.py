# SPDX-License-Identifier: Apache-2.0
"""Lets typer commands take frozen dataclasses of options instead of long parameter lists.

A field is annotated like a typer parameter; the help lists fields in their order.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: each dataclass parameter becomes one option per field."""
    hints = get_type_hints(command, include_extras=True)
    sets = {name: hints[name] for name in inspect.signature(command).parameters if is_dataclass(hints[name])}
    signature = _flattened(command, hints)

    @functools.wraps(command)
    def flat(**values: Any) -> None:
        for name, options in sets.items():
            values[name] = options(**{field.name: values.pop(field.name) for field in fields(options)})
        command(**values)

    flat.__signature__ = signature  # type: ignore[attr-defined]
    flat.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return flat


def _flattened(command: Callable[..., None], hints: dict[str, Any]) -> inspect.Signature:
    parameters = []
    for parameter in inspect.signature(command).parameters.values():
        options = hints[parameter.name]
        if is_dataclass(options):
            parameters += _of_fields(options)
        else:
            parameters.append(parameter.replace(annotation=options, kind=inspect.Parameter.KEYWORD_ONLY))
    return inspect.Signature(parameters)


def _of_fields(options: Any) -> list[inspect.Parameter]:
    """The constructor's parameters; those without a default are required."""
    hints = get_type_hints(options, include_extras=True)
    return [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in inspect.signature(options).parameters.values()
    ]
