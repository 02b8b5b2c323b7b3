"""
Settings: their types, and how a feature declares its own.

A feature declares each setting once, as a field of a class, with its type, its default and its
help. Options, the configuration file and the documentation are made of that. Every reader of a
value raises C{ValueError} with words that go after the setting's name.

Many names: each type of setting, and each check of a text, has a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import attrs
from attrs import field, frozen

from ..errors import BrokerError
from ..files import readFile
from ..model import checkTopicName

S = TypeVar("S")

MAX_SECRETS_FILE: Final = 64 * 1024
"""The largest file of secrets, in bytes."""

UNITS: Final = "units s, m, h, d, w"
"""The units of lengths of time, for error texts."""

_LENGTH = re.compile(r"([1-9][0-9]{0,8})([smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_NUMBER = re.compile(r"-?[0-9]+")
_BASE_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")
HOST_AND_PORT: Final = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})")
"""A host with a port."""

_KEY = "svcbroker.setting"


class ConfigError(Exception):
    """
    A setting that cannot be used. The text is one line and names the setting.
    """


@frozen(kw_only=True)
class Setting:
    """
    One setting.

    @ivar name: its name, on the command line (after C{--}) and in TOML.
    @ivar attribute: the attribute of a configuration that holds it.
    @ivar kind: what it may be.
    @ivar default: its default, as a command line would have it.
    @ivar help: what it means, in a sentence without a dot.
    @ivar owner: the class that declares it.
    """

    name: str
    attribute: str
    kind: SettingType
    default: str
    help: str
    owner: type

    def check(self, value: Any) -> Any:
        """
        Read a value from TOML, or check one from Python.

        @raise ConfigError: it cannot be used.
        """
        return _checked(self.name, self.kind, value)


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


@frozen(kw_only=True)
class Endpoint:
    """
    The place where something is served: a Twisted endpoint string, or a port number, which is
    served on loopback; empty for nowhere. The setting's name is that of the port.

    @ivar others: texts that stand for another place than a port.
    """

    metavar: str = "PORT|ENDPOINT"
    others: Sequence[str] = ()

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
            raise ValueError(f"is not a port number, which is 0 to 65535: {value[:10]!r}")
        return f"tcp:{int(value)}:interface=127.0.0.1"


def declareSetting(
    name: str, kind: SettingType, default: Any, help: str, shown: str | None = None
) -> Any:
    """
    Declare a field of a configuration.

    @param shown: the default in words where its own text does not do.
    """

    def convert(value: Any) -> Any:
        return _checked(name, kind, value)

    text = str(default) if shown is None else shown
    return attrs.field(
        default=default,
        converter=convert,
        metadata={_KEY: (name, kind, text, help)},
    )


def _checked(name: str, kind: SettingType, value: Any) -> Any:
    try:
        return kind.check(value)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None


def declaredSettings(config: type[Any]) -> tuple[Setting, ...]:
    """The settings that a class declares, in its order."""
    found = []
    for attribute in attrs.fields(config):
        if _KEY not in attribute.metadata:
            continue
        name, kind, default, help = attribute.metadata[_KEY]
        found.append(
            Setting(
                name=name,
                attribute=attribute.name,
                kind=kind,
                default=default,
                help=help,
                owner=config,
            )
        )
    return tuple(found)


@frozen
class NoSettings:
    """The settings of what has none."""


def readSecrets(setting: str, path: str, parse: Callable[[bytes], S]) -> S:
    """
    Read a file of secrets that a setting names.

    @param parse: reads its content; it raises C{ValueError} with words that go after its path.
    @raise ConfigError: it cannot be used.
    """
    try:
        data = readFile(path, MAX_SECRETS_FILE)
        if len(data) > MAX_SECRETS_FILE:
            raise ConfigError(f"{setting}: {path} is larger than {MAX_SECRETS_FILE} bytes")
        return parse(data)
    except OSError as error:
        raise ConfigError(f"{setting}: cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{setting}: {path} {error}") from None


def secondsOf(text: str) -> int | None:
    """The seconds of a length of time; C{None} where the text is none."""
    found = _LENGTH.fullmatch(text)
    return None if found is None else int(found[1]) * _SECONDS[found[2]]


@frozen
class Period:
    """
    A length of time between two of something.

    @ivar seconds: in seconds; 0 stands for never.
    """

    seconds: int

    def __str__(self) -> str:
        """The length as a command line has it."""
        return f"{self.seconds}s" if self.seconds else ""


def period(text: str) -> Period:
    """A length of time such as 24h; empty for never."""
    seconds = secondsOf(text) if text else 0
    if seconds is None:
        raise ValueError(f"is not a length of time such as 24h ({UNITS}): {text!r}")
    return Period(seconds)


def anyText(text: str) -> str:
    """Any text: it is checked elsewhere, or not at all."""
    return text


def someText(text: str) -> str:
    """Text that is not blank."""
    if not text.strip():
        raise ValueError("is blank")
    return text


def basePath(text: str) -> str:
    """
    A path under which the interface is served, without a slash at its end; C{/} and nothing are
    none.
    """
    if text in ("", "/"):
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


def filePath(text: str) -> Path:
    """A path in the file system."""
    return Path(someText(text))


def advertised(text: str) -> str:
    """Check the address of a broker, C{host:port}; nothing leaves that to where it listens."""
    found = HOST_AND_PORT.fullmatch(text)
    if text and (found is None or not 0 < int(found[1]) < 65536):
        raise ValueError(f"is not host:port such as broker1.example:8080: {text!r}")
    return text


# A user and a password in a URL, whose colons may be escaped in a description.
_URL_CREDENTIALS = re.compile(r"(:(?:\\?/){2})[^/@\s]+@")
_SECRET_VALUE = re.compile(r"\b(\w*(?:password|passphrase|secret|token)\w*=)(?!\*)[^:,\s]+", re.I)


def maskSecrets(text: str) -> str:
    """A text without the credentials of URLs, and the secrets of descriptions."""
    return _SECRET_VALUE.sub(r"\1***", _URL_CREDENTIALS.sub(r"\1***@", text))
