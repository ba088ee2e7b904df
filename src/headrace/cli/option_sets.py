"""Options of a command as frozen dataclasses: declared once with their help, handed over as one object each.

Knows no command. A field is annotated as a parameter of typer's would be; the help keeps their order.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """For typer: each parameter that is a dataclass becomes one parameter for each of its fields."""
    hints = get_type_hints(command, include_extras=True)
    sets = {name: hints[name] for name in inspect.signature(command).parameters if is_dataclass(hints[name])}
    signature = _flattened(command, hints)

    @functools.wraps(command)
    def flat(**given: Any) -> None:
        for name, options in sets.items():
            given[name] = options(**{field.name: given.pop(field.name) for field in fields(options)})
        command(**given)

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
    """As the constructor has them: without a default where the command line must say something."""
    hints = get_type_hints(options, include_extras=True)
    return [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in inspect.signature(options).parameters.values()
    ]
