# SPDX-License-Identifier: Apache-2.0
"""Reads JSON row by row, without compiled kernels: same rows, same rejects.

One difference: JSON_TEXT fields come re-spelled (no spaces), not as the record spells them. Read next:
json/nodes.py.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np

from headrace.client.arrow.kernels.types import Int32s
from headrace.client.arrow.values.nodes import Fault, Kind, Unfit, ValueNode
from headrace.client.arrow.values.row_arrays import array_of

_DEEPEST = 500
_FLOAT32_END = float.fromhex("0x1.fffffefffffffp127")
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SPACE = " \n\r\t"


class _Members(list[tuple[str, Any]]):
    """An object with every member, also those of one name."""


class _TooLarge(float):
    """A number that was written out, and is beyond every float."""


def _number(text: str) -> float:
    number = float(text)
    return _TooLarge(number) if math.isinf(number) else number


_DECODER = json.JSONDecoder(object_pairs_hook=_Members, parse_float=_number)


def read_json_rows(nodes: Sequence[ValueNode], column: Any) -> tuple[Any, Int32s]:
    """As KernelReader.read returns them."""
    faults = np.zeros((len(column), 3), np.int32)
    found: list[Any] = []
    for row, data in enumerate(column.to_pylist()):
        try:
            found.append(None if data is None else _fitted(nodes, 0, _parsed(data)))
        except Unfit as error:
            faults[row] = error.row
            found.append(None)
    return array_of(nodes, 0, found), faults


def _parsed(data: bytes) -> Any:
    try:
        text = data.decode()
        value, end = _DECODER.raw_decode(text, len(text) - len(text.lstrip(_SPACE)))
    except UnicodeDecodeError as error:
        raise Unfit(Fault.UTF8, 0, error.start) from None
    except json.JSONDecodeError as error:
        fault = Fault.CUT_OFF if error.pos >= len(error.doc) else Fault.SYNTAX
        raise Unfit(fault, 0, len(error.doc[: error.pos].encode())) from None
    except (RecursionError, ValueError):  # thousands of brackets, or of digits
        raise Unfit(Fault.DEEP, 0) from None
    if text[end:].strip(_SPACE):
        raise Unfit(Fault.LEFT_OVER, 0, len(text[:end].encode()))
    _check_strings(value, _DEEPEST)
    return value


def _check_strings(value: Any, depth: int) -> None:
    """Half characters are no text; so deep a nesting is no record."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Unfit(Fault.SYNTAX, 0) from None
    elif isinstance(value, list):
        if depth == 0:
            raise Unfit(Fault.DEEP, 0)
        for each in value:
            for part in each if isinstance(value, _Members) else (each,):
                _check_strings(part, depth - 1)


def _fitted(nodes: Sequence[ValueNode], place: int, value: Any) -> Any:
    """The value as `array_of` wants it."""
    node = nodes[place]
    if value is None:
        if not node.nullable:
            raise Unfit(Fault.NULL, place)
        return None
    if node.kind is Kind.TEXT:
        return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))
    if node.kind is Kind.STRUCT and isinstance(value, _Members):
        return _fitted_struct(nodes, place, value)
    if node.kind is Kind.LIST and isinstance(value, list) and not isinstance(value, _Members):
        return [_fitted(nodes, node.first_child, each) for each in value]
    if node.kind is Kind.MAP and isinstance(value, _Members):
        return [(name, _fitted(nodes, node.first_child + 1, each)) for name, each in value]
    return _fitted_leaf(node, place, value)


def _fitted_struct(nodes: Sequence[ValueNode], place: int, value: _Members) -> list[Any]:
    node = nodes[place]
    fields = range(node.first_child, node.first_child + node.children)
    by_name = {nodes[field].name.decode(): field for field in fields}
    found: dict[int, Any] = {}
    for name, each in value:
        field = by_name.get(name)
        if field is None:
            if node.low:
                raise Unfit(Fault.UNKNOWN, place)
            continue
        if field in found:
            raise Unfit(Fault.TWICE, field)
        found[field] = _fitted(nodes, field, each)
    for field in fields:
        if field not in found and not nodes[field].nullable:
            raise Unfit(Fault.MISSING, field)
    return [found.get(field) for field in fields]


def _fitted_leaf(node: ValueNode, place: int, value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if node.kind is Kind.STRING and isinstance(value, str):
        return value
    if node.kind is Kind.BOOL and isinstance(value, bool):
        return value
    if node.kind is Kind.INT and is_number and isinstance(value, int):
        if not (node.low <= value <= min(node.high, (1 << 63) - 1)):
            raise Unfit(Fault.RANGE, place)
        return value
    if node.kind is Kind.FLOAT and is_number:
        return _fitted_float(node, place, value)
    if node.kind is Kind.TIME and isinstance(value, str):
        return _moment(value, node, place)
    raise Unfit(Fault.KIND, place)


def _fitted_float(node: ValueNode, place: int, value: int | float) -> float:
    try:
        number = float(value)
    except OverflowError:
        raise Unfit(Fault.RANGE, place) from None
    if isinstance(value, _TooLarge) or (node.low and _FLOAT32_END < abs(number) < math.inf):
        raise Unfit(Fault.RANGE, place)
    return number


def _moment(text: str, node: ValueNode, place: int) -> int:
    """Ticks since 1970, or days."""
    match = _MOMENT.fullmatch(text)
    wants_time, wants_zone = node.low > 0, node.high > 0
    if match is None or (match[2] is not None) != wants_time or (match[6] is not None) != wants_zone:
        raise Unfit(Fault.TIME, place)
    day, hours, minutes, seconds, fraction, zone = match.groups()
    digits = (fraction or "").rstrip("0")
    try:
        moment = datetime.fromisoformat(day).replace(tzinfo=UTC)
        if not wants_time:
            return int((moment - _EPOCH).days)
        moment = moment.replace(hour=int(hours), minute=int(minutes), second=int(seconds or 0))
        since = moment - _shift(zone) - _EPOCH
    except ValueError:
        raise Unfit(Fault.TIME, place) from None
    if 10 ** len(digits) > node.low:
        raise Unfit(Fault.TIME, place)
    ticks = (since // timedelta(seconds=1)) * node.low + int(digits or 0) * node.low // 10 ** len(digits)
    if not -(1 << 63) <= ticks < 1 << 63:
        raise Unfit(Fault.TIME, place)
    return int(ticks)


def _shift(zone: str | None) -> timedelta:
    if zone is None or zone == "Z":
        return timedelta(0)
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    timezone(timedelta(hours=hours, minutes=minutes))  # ValueError when it is none
    if minutes > 59:
        raise ValueError(zone)
    return timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1)


def _plain(value: Any) -> Any:
    if isinstance(value, _Members):
        return {name: _plain(each) for name, each in value}
    return [_plain(each) for each in value] if isinstance(value, list) else value
