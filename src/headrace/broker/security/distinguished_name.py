# SPDX-License-Identifier: Apache-2.0
"""The subject of a certificate as text, as in Kafka's principals (RFC 2253, as Java writes it).

Reads the DER bytes itself: Python's `ssl` gives names without their types, which RFC 2253 needs for
attributes that it has no keyword for. The certificate was verified before. Read next: tls.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import DecodeError

_SEQUENCE, _SET, _OID, _VERSION = 0x30, 0x31, 0x06, 0xA0
_LONG_FORM = 0x80
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_TEXT_ENCODINGS = {
    0x0C: "utf-8",  # UTF8String
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # T61String
    0x16: "ascii",  # IA5String
    0x1B: "ascii",  # GeneralString
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}
_ESCAPED = frozenset(',=+<>#;"\\')


def subject_of(certificate: bytes) -> str:
    """The distinguished name of the certificate's owner, the most specific part first."""
    try:
        return ",".join("+".join(_attributes(part)) for part in reversed(list(_subject(certificate))))
    except (IndexError, ValueError) as error:
        raise DecodeError(f"a certificate whose subject cannot be read: {error}") from None


def _subject(certificate: bytes) -> Iterator[bytes]:
    """The relative distinguished names, in the order of the certificate."""
    _, whole, _ = _element(certificate, 0)
    _, body, _ = _element(whole, 0)
    elements = [element for element in _elements(body) if element[0] != _VERSION]
    _serial, _algorithm, _issuer, _validity, (tag, subject), *_ = elements
    if tag != _SEQUENCE:
        raise IndexError("the subject is no sequence")
    for kind, part in _elements(subject):
        if kind != _SET:
            raise IndexError("a part of the subject is no set")
        yield part


def _attributes(part: bytes) -> Iterator[str]:
    for _, attribute in _elements(part):
        kind, oid, end = _element(attribute, 0)
        if kind != _OID:
            raise IndexError("an attribute without a type")
        tag, value, _ = _element(attribute, end)
        name = _dotted(oid)
        keyword, encoding = _KEYWORDS.get(name), _TEXT_ENCODINGS.get(tag)
        if keyword is None or encoding is None:
            yield f"{keyword or name}=#{attribute[end:].hex()}"
        else:
            yield f"{keyword}={_escaped(value.decode(encoding))}"


def _escaped(text: str) -> str:
    escaped = "".join("\\" + c if c in _ESCAPED else "\\00" if c == "\0" else c for c in text)
    body = escaped.strip(" \r")
    if not body:
        return "".join("\\" + c for c in escaped)
    start = escaped.index(body)
    before, after = escaped[:start], escaped[start + len(body) :]
    return "".join("\\" + c for c in before) + body + "".join("\\" + c for c in after)


def _dotted(oid: bytes) -> str:
    first = min(oid[0] // 40, 2)
    numbers, value = [first, oid[0] - 40 * first], 0
    for byte in oid[1:]:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    return ".".join(map(str, numbers))


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(data):
        tag, value, position = _element(data, position)
        yield tag, value


def _element(data: bytes, position: int) -> tuple[int, bytes, int]:
    """Tag, value and end of the element at a position. Raises IndexError beyond the end."""
    tag, size = data[position], data[position + 1]
    start = position + 2
    if size >= _LONG_FORM:
        count = size - _LONG_FORM
        size = int.from_bytes(data[start : start + count], "big")
        start += count
    if start + size > len(data):
        raise IndexError("it is cut short")
    return tag, data[start : start + size], start + size
