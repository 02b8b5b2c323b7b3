"""
Asking over HTTP: whether a daemon answers, and what time other brokers have.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx
from attrs import frozen

_TIMEOUT: Final = 3.0

_MAX_ANSWER: Final = 1024 * 1024
"""The most bytes of an answer that is read: who answers may be anybody."""


@frozen(kw_only=True)
class Answer:
    """
    What a server has answered.

    @ivar ahead: how many seconds its clock is ahead of this one; C{None} where it tells no time.
    @ivar value: its JSON; C{None} where it is none.
    """

    ahead: float | None
    value: Any


Ask = Callable[..., Answer | None]
"""C{ask(url, headers, isVerified)}: L{askServer}, or what a test has in its place."""


def askServer(
    url: str, headers: Mapping[str, str] | None = None, isVerified: bool = True
) -> Answer | None:
    """
    GET a URL.

    @param isVerified: whether the server's certificate must be trusted. On this machine it is one
        for names by which others reach it.
    @return: C{None} where there is no answer in time, or one that is too long.
    """
    began, body = time.time(), bytearray()
    try:
        with httpx.stream(
            "GET", url, headers=headers, timeout=_TIMEOUT, verify=isVerified, trust_env=False
        ) as response:
            answered = time.time()
            for piece in response.iter_bytes():
                body += piece
                if len(body) > _MAX_ANSWER or time.time() > began + _TIMEOUT:
                    return None
    except (httpx.HTTPError, httpx.InvalidURL, OSError):
        return None
    ahead = None
    try:
        date = parsedate_to_datetime(response.headers["date"]).timestamp()
        # The date is in whole seconds, cut off.
        ahead = date + 0.5 - (began + answered) / 2
    except (KeyError, ValueError):
        pass
    try:
        return Answer(ahead=ahead, value=json.loads(body))
    except ValueError:
        return Answer(ahead=ahead, value=None)


def isAlive(answer: Answer | None) -> bool:
    """Whether a svcbroker has answered C{/healthz}."""
    return answer is not None and answer.value == {"status": "alive"}


def unready(answer: Answer | None) -> Sequence[str]:
    """Why the groups of a daemon make no progress, as it answers C{/readyz}."""
    try:
        groups = answer.value["groups"] if answer is not None else {}
        return [
            f"group {name}: {group['reason']}"
            for name, group in groups.items()
            if not group["ready"]
        ]
    except (TypeError, KeyError, AttributeError):
        return []
