"""
The rules of CloudEvents 1.0: what attributes are valid, and how data of a type is written in JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from ..errors import ParameterInvalid
from ..model import parseOffset

VERSION: Final = "1.0"
EVENT_ID: Final = "svceventid"
SOURCE: Final = "svcsource"
EXTENSIONS: Final = "svcextensions"
AUTHOR: Final = "svcauthor"
SIGNATURE: Final = "svcsignature"
SIGNED_AT: Final = "svcsignedat"
ERASED: Final = "svcerased"
OURS: Final = frozenset({EVENT_ID, SOURCE, EXTENSIONS, AUTHOR, SIGNATURE, SIGNED_AT, ERASED})
"""The attributes that the broker adds."""

_SHOWN = 100
_MAX_INTEGER = 2**31

_NAME = re.compile(r"[a-z0-9]+", re.ASCII)
# Control characters and noncharacters of Unicode. JSON and UTF-8 have no lone surrogates.
_FORBIDDEN = re.compile(
    "[\0-\x1f\x7f-\x9f\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
    + "]"
)
_URI_CHARACTERS = r"(?:[A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})*"
_URI_REFERENCE = re.compile(f"{_URI_CHARACTERS}(?:#{_URI_CHARACTERS})?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~\-]+"
# No part can match the same text in two ways, or a publisher could make a match take hours.
_MEDIA_TYPE = re.compile(
    rf'{_TOKEN}/{_TOKEN}(?:[ \t]*;(?:[ \t]*{_TOKEN}=(?:{_TOKEN}|"(?:[^"\\]|\\.)*"))?)*[ \t]*'
)
CHARSET = re.compile(rf';[ \t]*charset="?({_TOKEN})', re.IGNORECASE)
UNICODE_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii"})


class DataForm(Enum):
    """How data of a type is written in JSON."""

    JSON = 0
    TEXT = 1
    BINARY = 2


def isAttributeName(name: str) -> bool:
    """Whether an attribute may have this name."""
    return _NAME.fullmatch(name) is not None and name != "data"


def checkAttributes(attributes: Mapping[str, object]) -> None:
    """
    Check the attributes of an event.

    @raise ParameterInvalid: these are not the attributes of a CloudEvent.
    """
    for name in ("specversion", "id", "source", "type"):
        if name not in attributes:
            raise ParameterInvalid(f"{name}: is required")
    for name, value in attributes.items():
        fault = _fault(name, value)
        if fault is not None:
            raise ParameterInvalid(f"{name[:_SHOWN]}: {fault}")


def _fault(name: str, value: object) -> str | None:
    """What is wrong with an attribute; C{None} if nothing is."""
    if not isAttributeName(name):
        return "an attribute's name has lower-case letters and digits only"
    check = _CHECKS.get(name)
    if isinstance(value, str):
        if _FORBIDDEN.search(value) is not None:
            return "has characters that CloudEvents does not allow"
        if check is None or check[1](value):
            return None
        return f"is not {check[0]}: {value[:_SHOWN]}" if value else f"is not {check[0]}"
    if check is not None:
        return "is not a string"
    if not isinstance(value, int):
        return "is not a string, a whole number or a Boolean"
    return None if -_MAX_INTEGER <= value < _MAX_INTEGER else "has more than 32 bits"


def _isReference(text: str) -> bool:
    return bool(text) and _URI_REFERENCE.fullmatch(text) is not None


def _isURI(text: str) -> bool:
    return _isReference(text) and _SCHEME.match(text) is not None


def _isTime(text: str) -> bool:
    # An offset may also be milliseconds, or have a space between date and time.
    if text[10:11] not in ("T", "t"):
        return False
    try:
        parseOffset(f"OFFSET_TIME:{text}")
    except ParameterInvalid:
        return False
    return True


_TEXT_CHECK: Final = ("a text of one character or more", bool)
_CHECKS: Final[Mapping[str, tuple[str, Callable[[str], bool]]]] = {
    "specversion": (VERSION, lambda text: text == VERSION),
    "id": _TEXT_CHECK,
    "source": ("a URI-reference", _isReference),
    "type": _TEXT_CHECK,
    "datacontenttype": ("a media type", lambda text: _MEDIA_TYPE.fullmatch(text) is not None),
    "dataschema": ("an absolute URI", _isURI),
    "subject": _TEXT_CHECK,
    "time": ("a time of RFC 3339", _isTime),
}
"""What the attributes of the specification have to be."""


def hasOtherCharset(contentType: object) -> bool:
    """Whether C{datacontenttype} says that data is text which is not in UTF-8."""
    found = CHARSET.search(contentType) if isinstance(contentType, str) else None
    return found is not None and found[1].lower() not in UNICODE_CHARSETS


def formOf(contentType: object) -> DataForm:
    """
    How data is written in JSON.

    @param contentType: C{datacontenttype}; C{None} means JSON.
    """
    if hasOtherCharset(contentType):
        return DataForm.BINARY
    if contentType is None:
        return DataForm.JSON
    kind, _, subtype = str(contentType).partition(";")[0].strip().lower().partition("/")
    if subtype == "json" or subtype.endswith("+json"):
        return DataForm.JSON
    isText = kind == "text" or subtype == "xml" or subtype.endswith("+xml")
    return DataForm.TEXT if isText else DataForm.BINARY
