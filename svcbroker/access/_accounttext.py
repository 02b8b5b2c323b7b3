"""
Changes to the text of a file of accounts, line by line: comments and order stay as they are.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from attrs import frozen

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_PASSWORD_LINE = re.compile(r"\s*password\s*=")
_ACCOUNTS: Final = "accounts"


class CannotEdit(Exception):
    """The text is written in a way that cannot be changed line by line. The message says so."""


@frozen
class _Section:
    """
    A header and the lines below it, down to the comments in front of the next header.

    @ivar path: the keys that the header names.
    @ivar start: the number of the header's line.
    @ivar end: the number of the line after the last one.
    """

    path: tuple[str, ...]
    start: int
    end: int


class AccountText:
    """
    The text of a file of accounts. Each change is compared with what it was to change: a text that
    would come to mean anything else is not written.
    """

    def __init__(self, text: str) -> None:
        """
        @param text: TOML.
        """
        self._tables = tomllib.loads(text)
        self._lines = text.splitlines()

    def addAccount(self, name: str, values: Mapping[str, Any]) -> str:
        """
        The text with one more account.

        @param values: its keys: text, and lists of text.
        """
        lines = [f"[{_dotted(_ACCOUNTS, name)}]"]
        lines += [f"{key} = {_value(value)}" for key, value in values.items()]
        tables = deepcopy(self._tables)
        tables.setdefault(_ACCOUNTS, {})[name] = dict(values)
        return self._checked([*self._lines, *_parted(self._lines), *lines], tables, name)

    def setPassword(self, name: str, hash: str) -> str:
        """The text with another password of an account."""
        header = self._header(name)
        section = self._lines[header.start + 1 : header.end]
        kept = [line for line in section if not _PASSWORD_LINE.match(line)]
        place = next((at for at, line in enumerate(section) if _PASSWORD_LINE.match(line)), 0)
        kept.insert(place, f"password = {_value(hash)}")
        tables = deepcopy(self._tables)
        tables[_ACCOUNTS][name]["password"] = hash
        return self._checked(self._replaced([header], kept), tables, name)

    def addToken(self, name: str, label: str, sha256: str, expires: Any) -> str:
        """
        The text with one more token of an account.

        @param expires: a date or a date with a time; C{None} for never.
        """
        token = {"label": label, "sha256": sha256}
        if expires is not None:
            token["expires"] = expires
        lines = ["", f"[[{_dotted(_ACCOUNTS, name, 'tokens')}]]"]
        lines += [f"{key} = {_value(value)}" for key, value in token.items()]
        self._header(name)
        end = max(section.end for section in self._sections(_ACCOUNTS, name))
        tables = deepcopy(self._tables)
        tables[_ACCOUNTS][name].setdefault("tokens", []).append(token)
        return self._checked([*self._lines[:end], *lines, *self._lines[end:]], tables, name)

    def removeToken(self, name: str, label: str) -> str:
        """The text without one token of an account, which has it."""
        tables = deepcopy(self._tables)
        tokens = tables[_ACCOUNTS][name]["tokens"]
        place = [each.get("label") for each in tokens].index(label)
        del tokens[place]
        if not tokens:
            del tables[_ACCOUNTS][name]["tokens"]
        sections = list(self._sections(_ACCOUNTS, name, "tokens"))
        if len(sections) <= place:
            raise _cannot(name)
        return self._checked(self._replaced([sections[place]], None), tables, name)

    def removeAccount(self, name: str) -> str:
        """The text without an account, which it has."""
        tables = deepcopy(self._tables)
        del tables[_ACCOUNTS][name]
        sections = list(self._sections(_ACCOUNTS, name))
        return self._checked(self._replaced(sections, None), tables, name)

    def _header(self, name: str) -> _Section:
        for section in self._sections(_ACCOUNTS, name):
            if section.path == (_ACCOUNTS, name):
                return section
        raise _cannot(name)

    def _sections(self, *prefix: str) -> Iterator[_Section]:
        headers = [
            (number, path)
            for number, line in enumerate(self._lines)
            if (path := _headerPath(line)) is not None
        ]
        ends = [*(number for number, _ in headers[1:]), len(self._lines)]
        for (start, path), end in zip(headers, ends, strict=False):
            if path[: len(prefix)] != prefix:
                continue
            while end > start + 1 and _isBlank(self._lines[end - 1]):
                end -= 1
            yield _Section(path, start, end)

    def _replaced(self, sections: Sequence[_Section], body: Sequence[str] | None) -> list[str]:
        """The lines with other bodies of sections; C{None} removes them with their headers."""
        lines = list(self._lines)
        for section in reversed(sections):
            if body is None:
                del lines[section.start : section.end]
                # Of the blank lines in front and behind, one is enough.
                while 0 < section.start < len(lines) and not (
                    lines[section.start - 1].strip() or lines[section.start].strip()
                ):
                    del lines[section.start]
            else:
                lines[section.start + 1 : section.end] = body
        return lines

    def _checked(self, lines: Sequence[str], expected: Mapping[str, Any], name: str) -> str:
        text = "\n".join(lines).strip("\n") + "\n"
        try:
            found = tomllib.loads(text)
        except ValueError:
            raise _cannot(name) from None
        if _withoutEmpty(found) != _withoutEmpty(expected):
            raise _cannot(name)
        return text


def _cannot(name: str) -> CannotEdit:
    return CannotEdit(
        f"the account {name} is not written as [{_dotted(_ACCOUNTS, name)}] with one line for each "
        "key: change it with an editor"
    )


def _withoutEmpty(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    # The last account goes with its header, and the table of all accounts with it.
    return {key: value for key, value in tables.items() if value != {}}


def _isBlank(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _parted(lines: Sequence[str]) -> list[str]:
    return [""] if lines and lines[-1].strip() else []


def _headerPath(line: str) -> tuple[str, ...] | None:
    """The keys that a header names; C{None} where a line is none."""
    if not line.lstrip().startswith("["):
        return None
    try:
        table: Any = tomllib.loads(line)
    except ValueError:
        return None
    path = []
    while table:
        if isinstance(table, list):
            table = table[0]
        else:
            [(key, table)] = table.items()
            path.append(key)
    return tuple(path)


def _dotted(*keys: str) -> str:
    return ".".join(key if _BARE_KEY.fullmatch(key) else _value(key) for key in keys)


def _value(value: Any) -> str:
    """A value in TOML. Its strings have no control characters, and are JSON strings, too."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    text: str = value.isoformat()
    return text
