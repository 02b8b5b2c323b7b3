"""
Descriptions of plugins: C{name:key=value:key=value}, in the manner of Twisted's endpoint strings.

A backslash takes the next character literally, so C{path=C\\:/x} has a colon in its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from attrs import frozen
from twisted.plugin import getPlugins

from ..interfaces import InvalidDescription

MAX_DESCRIPTION_LENGTH = 4096


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
    """The parts between colons: what is before the first equals sign, and what is after it."""
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
                f"{name}: {key!r} is not a setting; settings are written key=value"
            )
        if key in settings:
            raise InvalidDescription(f"{name}: {key} is given twice")
        settings[key] = value
    return Description(name=name, settings=settings)


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
    What a description describes: what the factory of its name makes of its settings.

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
