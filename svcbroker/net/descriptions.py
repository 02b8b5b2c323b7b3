"""
Descriptions of plugins: C{name:key=value:key=value}, in the manner of Twisted's endpoint strings.

A backslash takes the next character literally, so C{path=C\\:/x} has a colon in its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from attrs import frozen
from twisted.plugin import getPlugins
from twisted.python.reflect import namedModule

from ..interfaces import InvalidDescription

MAX_DESCRIPTION_LENGTH = 4096

Readers: TypeAlias = Mapping[str, tuple[Callable[[str], Any], str]]
"""
For each setting, a reader of its text that raises C{ValueError}, and its form in words.
"""


@frozen(kw_only=True)
class Description:
    """
    A description, taken apart.

    @ivar name: the name of the kind.
    @ivar settings: the settings as written, without their escapes.
    """

    name: str
    settings: Mapping[str, str]


def _split(text: str) -> Iterator[tuple[str, str | None]]:
    """The parts between colons, each cut at its first equals sign."""
    key, value = "", None
    characters = iter(text)
    for character in characters:
        if character == ":":
            yield key, value
            key, value = "", None
            continue
        if character == "=" and value is None:
            value = ""
            continue
        if character == "\\":
            character = next(characters, "")
            if not character:
                raise InvalidDescription("a description cannot end in a backslash")
        if value is None:
            key += character
        else:
            value += character
    yield key, value


def readDescription(text: str) -> Description:
    """
    Take a description apart. Whether such a kind exists is not looked at.

    @raise InvalidDescription: it does not have the form of a description.
    """
    if len(text) > MAX_DESCRIPTION_LENGTH:
        raise InvalidDescription(f"a description has at most {MAX_DESCRIPTION_LENGTH} characters")
    (name, value), *rest = _split(text)
    if not name or value is not None:
        raise InvalidDescription(f"{text!r} does not begin with a name")
    settings: dict[str, str] = {}
    for key, value in rest:
        if value is None or not key:
            raise InvalidDescription(
                f"{name}: {key!r} is not a setting; settings are written key=value, and a colon in "
                "a value \\:"
            )
        if key in settings:
            raise InvalidDescription(f"{name}: {key} is given twice")
        settings[key] = value
    return Description(name=name, settings=settings)


def readValues(what: str, settings: Mapping[str, str], readers: Readers) -> dict[str, Any]:
    """
    Read the settings that a description has. Called by factories.

    @param what: what the settings are of, for the operator.
    @raise InvalidDescription: one is unknown or has a bad value.
    """
    values: dict[str, Any] = {}
    for key, text in settings.items():
        if key not in readers:
            known = ", ".join(readers)
            raise InvalidDescription(f"{key}: {what} has no such setting, but {known}")
        read, expected = readers[key]
        try:
            values[key] = read(text)
        except ValueError:
            raise InvalidDescription(f"{key}: {text!r} is not {expected}") from None
    return values


def absolutePath(text: str) -> Path:
    """
    Read the path of a file. A relative one is told from the working directory.

    @raise ValueError: it is none.
    """
    if not text.strip() or not text.isprintable():
        raise ValueError
    return Path(text).absolute()


@frozen
class ModuleFactory:
    """
    A factory that is a module, which is imported when it is first needed, so that listing plugins
    costs nothing.

    The module has C{configure}, and the values C{SUMMARY} and C{SETTINGS} for L{summary} and
    L{settings}.

    @ivar name: the first word of its descriptions.
    @ivar module: the full name of the module.
    """

    name: str
    module: str

    def _load(self) -> ModuleType:
        module: ModuleType = namedModule(self.module)
        return module

    @property
    def summary(self) -> str:
        """One line about it."""
        summary: str = self._load().SUMMARY
        return summary

    @property
    def settings(self) -> Mapping[str, str]:
        """Each setting's key, and its meaning in a line."""
        settings: Mapping[str, str] = self._load().SETTINGS
        return settings

    def configure(self, settings: Mapping[str, str]) -> Callable[[Any], Any]:
        """
        Check a description's settings and remember them.

        @return: makes what is described.
        @raise InvalidDescription: a setting is unknown or has a bad value.
        """
        made: Callable[[Any], Any] = self._load().configure(settings)
        return made


def findFactories(
    interface: Any, getPlugins: Callable[[Any], Iterable[Any]] = getPlugins
) -> list[Any]:
    """
    Every kind that is installed, in the order of their names.

    @param interface: of the factories.
    @param getPlugins: as C{twisted.plugin.getPlugins}.
    """
    return sorted(getPlugins(interface), key=lambda factory: str(factory.name))


def configureDescribed(what: str, text: str, factories: Iterable[Any]) -> Any:
    """
    The object of a description: the factory of its name makes it of the settings.

    @param what: what the factories make, for the operator.
    @param factories: the kinds to choose from. They have C{configure}.
    @raise InvalidDescription: the form is wrong, no kind has that name (or two have), or the
        kind refuses the settings. The text is one line.
    """
    description = readDescription(text)
    known = list(factories)
    chosen = [factory for factory in known if factory.name == description.name]
    if not chosen:
        names = ", ".join(sorted({factory.name for factory in known})) or "none"
        raise InvalidDescription(
            f"there is no {what} called {description.name!r}; there are: {names}"
        )
    if len(chosen) > 1:
        raise InvalidDescription(f"{len(chosen)} plugins are called {description.name!r}")
    try:
        return chosen[0].configure(description.settings)
    except InvalidDescription as error:
        raise InvalidDescription(f"{description.name}: {error}") from error


def describeFactories(what: str, factories: Iterable[Any]) -> str:
    """
    A help text: each kind with its summary and its settings.

    @param what: what they make, with its article.
    @param factories: have C{name}, C{summary} and C{settings}.
    """
    lines = [f"{what} is described by its name and its settings: name:key=value:key=value", ""]
    for factory in factories:
        lines.append(factory.name)
        lines.append(f"    {factory.summary}")
        width = max(map(len, factory.settings), default=0)
        lines.extend(
            f"      {key:<{width}}  {meaning}" for key, meaning in factory.settings.items()
        )
        lines.append("")
    return "\n".join(lines)
