"""
Types of settings: how each is written on a command line and in a TOML file, and what it may be.

Every reader raises C{ValueError} with words that go after the setting's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from attrs import field, frozen

from ..access import BUILT_IN_ROLES, grantsOf
from ..broker import RetentionRule
from ..chain import Malformed
from ..errors import BrokerError
from ..interfaces import Action
from ..model import checkFilter, checkTopicName
from ..net.endpoints import parseAllowed
from ..operations import WEEVENT
from ..tlog import checkName
from .periods import UNITS, secondsOf

ON_HTTP: Final = "http"
"""The place of metrics that are served on the port of HTTP, in the place of an endpoint."""


class SettingType(Protocol):
    """
    The type of a setting's value.

    @ivar metavar: what stands for its value in help texts.
    """

    @property
    def metavar(self) -> str: ...

    def parse(self, text: str) -> Any:
        """Read it from a command line."""

    def check(self, value: Any) -> Any:
        """Read it from TOML, or check a value from Python. A good value stays as it is."""


@frozen(kw_only=True)
class Text:
    """A piece of text that must pass a test of its own."""

    metavar: str
    normalise: Callable[[str], Any]
    type: type = str

    def parse(self, text: str) -> Any:
        return self.check(text)

    def check(self, value: Any) -> Any:
        if self.type is not str and isinstance(value, self.type):
            return value
        if not isinstance(value, str):
            raise ValueError("is not text")
        if not value.isprintable():
            raise ValueError("has characters that cannot be printed")
        return self.normalise(value)


@frozen(kw_only=True)
class WholeNumber:
    """A whole number between bounds, both included."""

    metavar: str
    minimum: int
    maximum: int

    def parse(self, text: str) -> int:
        if not (text.isascii() and text.isdigit()) or len(text) > 19:
            raise ValueError(f"is not a whole number: {text!r}")
        return self.check(int(text))

    def check(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError("is not a whole number")
        if not self.minimum <= value <= self.maximum:
            raise ValueError(f"is not between {self.minimum} and {self.maximum}")
        return value


@frozen(kw_only=True)
class Seconds:
    """A time span in seconds: more than 0 and at most C{maximum}."""

    maximum: float
    metavar: str = "SECONDS"

    def parse(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"is not a number: {text!r}") from None
        return self.check(value)

    def check(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("is not a number")
        if not 0 < value <= self.maximum:  # Not a number (NaN) is neither.
            raise ValueError(f"is not more than 0 and at most {self.maximum:g}")
        return float(value)


@frozen(kw_only=True)
class Choice:
    """One word of several."""

    words: tuple[str, ...]

    @property
    def metavar(self) -> str:
        return "|".join(self.words)

    def parse(self, text: str) -> str:
        return self.check(text)

    def check(self, value: Any) -> str:
        if value not in self.words:
            raise ValueError(f"is none of {', '.join(self.words)}: {value!r}")
        word: str = value
        return word


@frozen(kw_only=True)
class Flag:
    """Yes or no: C{--name} and C{--no-name} on a command line, C{true} and C{false} in TOML."""

    metavar: str = ""

    def parse(self, text: str) -> bool:
        raise ValueError("takes no value")

    def check(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError("is neither true nor false")
        return value


@frozen(kw_only=True)
class List:
    """A setting that may be given more than once; a list in TOML."""

    of: SettingType
    finish: Callable[[tuple[Any, ...]], tuple[Any, ...]] = field(default=lambda values: values)

    @property
    def metavar(self) -> str:
        return self.of.metavar

    def parse(self, text: str) -> Any:
        return self.of.parse(text)

    def check(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, str) or not isinstance(value, list | tuple):
            raise ValueError("is not a list")
        return self.finish(tuple(self.of.check(item) for item in value))


@frozen(kw_only=True)
class Table(List):
    """
    A setting whose values are C{NAME=VALUE}, such as a L{List}; in TOML it may also be a table of
    names and values.
    """

    def check(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, Mapping):
            for name, text in value.items():
                if not isinstance(text, str):
                    raise ValueError(f"has a value that is not text, of {name!r}")
            value = [f"{name}={text}" for name, text in value.items()]
        return super().check(value)


_NUMBER = re.compile(r"-?[0-9]+")


@frozen(kw_only=True)
class Endpoint:
    """
    Where something is served: a Twisted endpoint string, or a port number, which is served on
    loopback; empty for nowhere.
    """

    metavar: str = "PORT|ENDPOINT"

    def parse(self, text: str) -> str:
        return self.check(text)

    def check(self, value: Any) -> str:
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            raise ValueError("is neither a port number nor text")
        if not value.isprintable():
            raise ValueError("has characters that cannot be printed")
        if _NUMBER.fullmatch(value) is None:
            return value
        if len(value) > 5 or not 0 <= int(value) <= 65535:
            raise ValueError(f"is not a port number: {value[:10]!r}")
        return f"tcp:{int(value)}:interface=127.0.0.1"


# What particular texts must be.

_BASE_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")
_HOST_AND_PORT = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})")
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,253}[A-Za-z0-9])?")
_GROUP_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


def anyText(text: str) -> str:
    """Any text: it is checked elsewhere, or not at all."""
    return text


def someText(text: str) -> str:
    """Text that is not blank."""
    if not text.strip():
        raise ValueError("is blank")
    return text


def basePath(text: str) -> str:
    """A path under which the interface is served, without a slash at its end; C{/} is none."""
    if text == "/":
        return ""
    if len(text) > 256 or _BASE_PATH.fullmatch(text) is None or {".", ".."} & {*text.split("/")}:
        raise ValueError(f"is not a path such as /svcbroker: {text!r}")
    return text


def topicName(text: str) -> str:
    """A topic's name; empty for none."""
    if text:
        try:
            checkTopicName(text)
        except BrokerError as error:
            raise ValueError(f"is not a topic's name: {error.message}") from None
    return text


def logOrigin(text: str) -> str:
    """The beginning of the names of transparency logs, without a slash at its end."""
    if text:
        try:
            checkName(text)
        except Malformed as error:
            raise ValueError(str(error)) from None
        if "://" in text or len(text) > 256:
            raise ValueError(f"is not a name such as broker.example/svcbroker: {text!r}")
    return text.rstrip("/")


def dialect(text: str) -> str:
    """The name of a dialect; nothing is none."""
    if text not in {"", WEEVENT.name}:
        raise ValueError(f"is not {WEEVENT.name}: {text!r}")
    return text


def allowedTarget(text: str) -> str:
    """A network, an address or a host's name."""
    parseAllowed(text)
    return text


def filePath(text: str) -> Path:
    """A path in the file system."""
    return Path(someText(text))


def groupId(text: str) -> str:
    """A group's id, which is also the name of its directory."""
    if _GROUP_ID.fullmatch(text) is None:
        raise ValueError(
            f"has an id that is not 1 to 64 of [A-Za-z0-9._-] without a dot in front: {text!r}"
        )
    return text


@frozen(kw_only=True)
class GroupSetting:
    """
    A group that is served.

    @ivar id: its id, also the name of its directory.
    @ivar ledger: the description of its ledger; C{None} takes C{--ledger}.
    """

    id: str
    ledger: str | None = None


def groupSetting(text: str) -> GroupSetting:
    """A group, and the description of its ledger if it has one of its own."""
    id, equals, description = text.partition("=")
    return GroupSetting(id=groupId(id.strip()), ledger=someText(description) if equals else None)


def distinctGroups(groups: tuple[GroupSetting, ...]) -> tuple[GroupSetting, ...]:
    """Groups, at least one and each once."""
    if not groups:
        raise ValueError("needs at least one group")
    # Ids are directories, and some file systems do not tell upper case from lower.
    ids = [group.id.lower() for group in groups]
    for group in groups:
        if ids.count(group.id.lower()) > 1:
            raise ValueError(f"has {group.id!r} twice (upper and lower case count as one)")
    return groups


_MAX_AGE: Final = 100 * 365 * 86400


def retentionRule(text: str) -> RetentionRule:
    """A pattern of topics, and how long their events are kept."""
    pattern, equals, age = text.rpartition("=")
    seconds = secondsOf(age)
    if not equals or seconds is None:
        raise ValueError(f"is not PATTERN=AGE such as telemetry/#=90d ({UNITS}): {text!r}")
    if seconds > _MAX_AGE:
        raise ValueError(f"has an age of more than 100 years: {text!r}")
    try:
        checkFilter(pattern)
    except BrokerError as error:
        raise ValueError(f"has a pattern that cannot be used ({error.message}): {text!r}") from None
    return RetentionRule(pattern, seconds)


def distinctRules(rules: tuple[RetentionRule, ...]) -> tuple[RetentionRule, ...]:
    """Rules of retention, each pattern once."""
    patterns = [rule.pattern for rule in rules]
    for pattern in patterns:
        if patterns.count(pattern) > 1:
            raise ValueError(f"has {pattern!r} twice")
    return rules


def hostName(text: str) -> str:
    """A host name or an address, without a port, in lower case."""
    if _HOST_NAME.fullmatch(text) is None:
        raise ValueError(f"is not a host name such as broker.example: {text!r}")
    return text.lower()


def origin(text: str) -> str:
    """An origin that browsers may call from, or C{*}."""
    if text == "*":
        return text
    parts = urlsplit(text)
    if (
        len(text) > 512
        or parts.scheme not in {"http", "https"}
        or not parts.netloc
        or text != f"{parts.scheme}://{parts.netloc}"
    ):
        raise ValueError(f"is neither * nor an origin such as https://example.com: {text!r}")
    return text


def advertised(text: str) -> str:
    """What a broker is called, C{host:port}; nothing leaves that to where it listens."""
    found = _HOST_AND_PORT.fullmatch(text)
    if text and (found is None or not 0 < int(found[1]) < 65536):
        raise ValueError(f"is not host:port such as broker1.example:8080: {text!r}")
    return text


_GRANTS_COMMA = re.compile(
    rf",\s*(?=(?:deny|{'|'.join(each.value for each in Action)}|\*)\s"
    rf"|(?:{'|'.join(BUILT_IN_ROLES)})\s*(?:,|$))"
)


def grantLines(texts: tuple[str, ...]) -> tuple[str, ...]:
    """
    Grants and names of built-in roles, one each. A comma parts them only where one may begin, as
    topics may have commas, too.
    """
    lines = tuple(line.strip() for text in texts for line in _GRANTS_COMMA.split(text))
    grantsOf(lines)
    return lines
