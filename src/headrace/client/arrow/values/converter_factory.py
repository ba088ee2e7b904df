# SPDX-License-Identifier: Apache-2.0
"""Makes the converter for a format. Read next: formats.py, converters.py.

Converters are imported on first use: most processes need one of them or none, and pyarrow.compute, which they
use, takes longer to load than the rest of the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from headrace.client.arrow.values.formats import Avro, Json, Word
from headrace.client.errors import ClientError

if TYPE_CHECKING:
    from headrace.client.arrow.values.converters import Converter


def converter_for(name: str, form: Any, topic: str) -> Converter | None:
    """For the column `name` of this topic; None for raw bytes."""
    if form == "raw":
        return None
    from headrace.client.arrow.values.converters import PlainConverter
    from headrace.client.arrow.values.plain import NUMBERS

    if isinstance(form, str) and (form == "string" or form in NUMBERS):
        return PlainConverter(name, form)
    if form == "json" or isinstance(form, Json):
        from headrace.client.arrow.values.json.reader import JsonConverter

        return JsonConverter(name, form if isinstance(form, Json) else Json())
    if form == "avro" or isinstance(form, Avro):
        from headrace.client.arrow.values.avro.reader import AvroConverter

        return AvroConverter(name, form if isinstance(form, Avro) else Avro(), topic)
    raise no_such_format(form)


def no_such_format(form: Any) -> ClientError:
    words = ", ".join(get_args(Word))
    return ClientError(
        f"{form!r} is not a format", next_step=f"use one of {words}, headrace.Json(…) or headrace.Avro(…)"
    )
