"""
The configuration file: settings in TOML.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ..files import openFile
from ..net.settings import ConfigError
from .config import makeConfig

MAX_FILE_SIZE: Final = 1024 * 1024
"""The largest configuration file, in bytes."""


def _lineOf(name: str, text: str) -> str:
    """The line of a key in a TOML text, in words; nothing where that cannot be seen."""
    quoted = re.escape(name)
    pattern = re.compile(rf"\s*\[*\s*[\"']?{quoted}[\"']?\s*[\].=]")
    for number, line in enumerate(text.splitlines(), 1):
        if pattern.match(line):
            return f", line {number}"
    return ""


def readFile(path: Path) -> dict[str, Any]:
    """
    The settings of a TOML file by their names, checked one by one.

    @raise ConfigError: it cannot be read or is not TOML, a key is unknown, or a value cannot
        be used. The text names the file, the line where that is known, and the key.
    """
    settings, mistakes = readMistakes(path)
    for mistake in mistakes.values():
        raise mistake
    return settings


def readMistakes(path: Path) -> tuple[dict[str, Any], Mapping[str, ConfigError]]:
    """
    The settings of a TOML file by their names, and what is wrong with those that cannot be used.

    @raise ConfigError: it cannot be read or is not TOML.
    """
    try:
        with openFile(path) as file:
            raw = file.read(MAX_FILE_SIZE + 1)
    except OSError as error:
        raise ConfigError(f"config: cannot read {path}: {error.strerror}") from error
    if len(raw) > MAX_FILE_SIZE:
        raise ConfigError(f"config: {path} is larger than {MAX_FILE_SIZE} bytes")
    try:
        text = raw.decode("utf-8")
        settings = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise ConfigError(f"config: {path} is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        # Beside its own error (a ValueError) the parser lets out what Python says of numbers
        # with thousands of digits, and of brackets that are nested as deep.
        raise ConfigError(f"config: {path} is not TOML: {error}") from error
    return settings, dict(_findMistakes(path, text, settings))


def _findMistakes(
    path: Path, text: str, settings: Mapping[str, Any]
) -> Iterator[tuple[str, ConfigError]]:
    for name, value in settings.items():
        try:
            makeConfig({name: value})
        except ConfigError as error:
            yield name, ConfigError(f"{path}{_lineOf(name, text)}: {error}")
