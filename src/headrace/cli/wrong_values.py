# SPDX-License-Identifier: Apache-2.0
"""Says in plain words why an option's value is wrong.

typer lets pydantic check values and passes its messages on: "Input should be a valid integer, unable to parse
string as an integer". They do not name the value. Read next: commands.py.
"""

from __future__ import annotations

from typing import Any

_REASONS = {
    "int_parsing": "{value} is not a whole number",
    "int_parsing_size": "{value} is too large",
    "int_from_float": "{value} is not a whole number",
    "float_parsing": "{value} is not a number",
    "finite_number": "{value} is not a finite number",
    "bool_parsing": "{value} is neither true nor false",
    "greater_than": "{value} is not above {gt}",
    "greater_than_equal": "{value} is less than {ge}",
    "less_than": "{value} is not below {lt}",
    "less_than_equal": "{value} is more than {le}",
    "value_error": "{error}",
}
"""By pydantic's type of error, with the names of its context."""


def usage_message(error: Any) -> str:
    """The message of a usage error of typer, without pydantic's words."""
    message = str(error.format_message()).rstrip(".")
    failed = getattr(error.__cause__, "errors", None)
    if failed is None:
        return message
    for each in failed():
        reason = _REASONS.get(each["type"])
        if reason is not None:
            words = reason.format(value=repr(each["input"]), **each.get("ctx", {})).rstrip(".")
            return message.replace(each["msg"].rstrip("."), words)
    return message
