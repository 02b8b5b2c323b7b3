"""
W3C Trace Context of events: C{traceparent} and C{tracestate}, which tracing programs add to
requests and messages.

They are kept as the extensions C{svc-traceparent} and C{svc-tracestate}. HTTP, STOMP, MQTT 5 and
CloudEvents have them under their own names. Malformed ones are ignored, as the W3C demands. To a
signed event nothing is added: its extensions are what its author has signed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ..model import MAX_EXTENSIONS_SIZE

TRACEPARENT: Final = "svc-traceparent"
TRACESTATE: Final = "svc-tracestate"
TRACE_NAMES: Final[Mapping[str, str]] = {TRACEPARENT: "traceparent", TRACESTATE: "tracestate"}
"""The extensions, and their names on other wires."""

_MAX_STATE: Final = 512
_MAX_MEMBERS: Final = 32

_PARENT = re.compile(
    "(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?"
)
_MEMBER = re.compile(
    r"(?:[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13}|[a-z][a-z0-9_\-*/]{0,255})"
    r"=[ -+\--<>-~]{0,255}[!-+\--<>-~]"
)


def readTrace(traceparent: str | None, tracestate: str | None = None) -> dict[str, str]:
    """
    Read the headers C{traceparent} and C{tracestate}.

    @return: the extensions; none where there is no valid C{traceparent}. Of a version that is
        newer than 00 there are the fields of that.
    """
    found = _PARENT.fullmatch(traceparent) if traceparent else None
    if found is None or (found[1] == "00" and found[3] is not None):
        return {}
    extensions = {TRACEPARENT: f"00-{found[2]}"}
    if tracestate and _isState(tracestate):
        extensions[TRACESTATE] = tracestate
    return extensions


def _isState(text: str) -> bool:
    members = [each.strip(" \t") for each in text.split(",")]
    keys = [each.partition("=")[0] for each in members if each]
    return (
        len(text) <= _MAX_STATE
        and 0 < len(keys) <= _MAX_MEMBERS
        and len(set(keys)) == len(keys)
        and all(_MEMBER.fullmatch(each) is not None for each in members if each)
    )


def shownTrace(extensions: Mapping[str, str]) -> dict[str, str]:
    """
    The valid trace context among extensions, C{traceparent} and C{tracestate}: clients can publish
    any text as an extension.
    """
    trace = readTrace(extensions.get(TRACEPARENT), extensions.get(TRACESTATE))
    return {TRACE_NAMES[key]: value for key, value in trace.items()}


def traceNames(extensions: Mapping[str, str]) -> Mapping[str, str]:
    """The extensions that are a valid trace context, with their names on STOMP and MQTT 5."""
    if TRACEPARENT not in extensions:
        return {}
    trace = readTrace(extensions[TRACEPARENT], extensions.get(TRACESTATE))
    return {key: TRACE_NAMES[key] for key in trace}


def withTrace(extensions: Mapping[str, str], trace: Mapping[str, str]) -> Mapping[str, str]:
    """
    Extensions with a trace context, unless they have one, or too little room for one.

    @param trace: what L{readTrace} gives.
    """
    if TRACEPARENT in extensions or TRACESTATE in extensions:
        return extensions
    both = {**extensions, **trace}
    size = sum(len(key.encode("utf-8", "replace")) for pair in both.items() for key in pair)
    return both if size <= MAX_EXTENSIONS_SIZE else extensions
