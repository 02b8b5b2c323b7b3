"""
The headers that a client has added to the requests of its webhook.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ...errors import ParameterInvalid

MAX_HEADERS: Final = 16
"""The most headers."""
MAX_SIZE: Final = 8192
"""The most characters of all names and values together: receivers take no more either."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}", re.ASCII)
_VALUE = re.compile(r"[!-~]([\t -~]*[!-~])?", re.ASCII)
# Of HTTP itself (the framing of a message, the connection, what the receiver believes of the
# sender) and those of the broker.
_FORBIDDEN = frozenset(
    (
        *("host", "content-length", "content-type", "content-encoding", "transfer-encoding"),
        *("connection", "keep-alive", "te", "trailer", "upgrade", "expect", "http2-settings"),
        *("accept-encoding", "date", "user-agent", "via", "forwarded"),
    )
)
_FORBIDDEN_PREFIXES = ("webhook-", "ce-", "x-svc-", "proxy-", "x-forwarded-")


def checkHeaders(headers: Mapping[str, str]) -> Mapping[str, str]:
    """
    Check the headers that are to be added to each request.

    @return: the headers, their names in lower case and in order.
    @raise ParameterInvalid: one may not be set, or is no header. The message holds no value.
    """
    if len(headers) > MAX_HEADERS:
        raise ParameterInvalid(f"headers: there are more than {MAX_HEADERS}")
    if sum(len(name) + len(value) for name, value in headers.items()) > MAX_SIZE:
        raise ParameterInvalid(f"headers: they have more than {MAX_SIZE} characters together")
    checked = {}
    for name, value in headers.items():
        if _NAME.fullmatch(name) is None:
            raise ParameterInvalid("headers: one of the names is not that of a header")
        key = name.lower()
        if key in _FORBIDDEN or key.startswith(_FORBIDDEN_PREFIXES):
            raise ParameterInvalid(f"headers: {key} is set by the broker alone")
        if key in checked:
            raise ParameterInvalid(f"headers: {key} is there twice")
        if _VALUE.fullmatch(value) is None:
            raise ParameterInvalid(f"headers: the value of {key} is empty or not plain ASCII")
        checked[key] = value
    return dict(sorted(checked.items()))
