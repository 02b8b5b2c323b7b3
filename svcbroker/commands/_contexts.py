"""
Contexts: where brokers are, and with which credentials, under names in a file of the user.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from attrs import define, field

from ..files import readFile, writeNew
from ._command import CommandError, didYouMean

FIELDS: Final = (
    *("url", "user", "password-file", "token-file", "ca", "cert", "cert-key", "group"),
)
"""What a context may have. Secrets are in files of their own."""

_CURRENT: Final = "current"
_CONTEXTS: Final = "contexts"


def contextsPath(environment: Mapping[str, str]) -> Path:
    """The file of the contexts, in the user's directory for configuration."""
    root = environment.get("XDG_CONFIG_HOME") or Path("~").expanduser() / ".config"
    return Path(root) / "svcbroker" / "contexts.toml"


@define
class Contexts:
    """
    The contexts of a user.

    @ivar path: their file.
    @ivar contexts: the fields of each, by its name.
    @ivar current: the name of the one in use.
    """

    path: Path
    contexts: dict[str, dict[str, str]] = field(factory=dict)
    current: str | None = None

    @classmethod
    def read(cls, path: Path) -> Contexts:
        """
        Read a file; without one there are no contexts.

        @raise CommandError: it is malformed.
        """
        try:
            text = readFile(path)
        except FileNotFoundError:
            return cls(path)
        try:
            document: dict[str, Any] = tomllib.loads(text.decode("utf-8"))
        except ValueError as error:
            raise CommandError(f"{path}: {error}") from None
        contexts, current = document.get(_CONTEXTS, {}), document.get(_CURRENT)
        isGood = isinstance(contexts, dict) and isinstance(current, str | None)
        for each in contexts.values() if isGood else ():
            isGood = isGood and isinstance(each, dict) and set(each) <= set(FIELDS)
            isGood = isGood and all(isinstance(value, str) for value in each.values())
            isGood = isGood and "url" in each
        if not isGood:
            raise CommandError(f"{path}: it is not as svcbroker context writes it")
        return cls(path, contexts, current)

    def find(self, name: str) -> Mapping[str, str]:
        """
        The fields of a context.

        @raise CommandError: there is none of this name.
        """
        if name not in self.contexts:
            hint = didYouMean(name, list(self.contexts))
            raise CommandError(f"there is no context {name!r}{hint}")
        return self.contexts[name]

    def write(self) -> None:
        """Replace the file as a whole. Its owner alone can read it."""
        lines = [] if self.current is None else [f"{_CURRENT} = {_quoted(self.current)}"]
        for name, fields in self.contexts.items():
            lines += ["", f"[{_CONTEXTS}.{_quoted(name)}]"]
            lines += [f"{key} = {_quoted(value)}" for key, value in fields.items()]
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        made.unlink(missing_ok=True)
        writeNew(made, ("\n".join(lines).strip() + "\n").encode("utf-8"))
        made.replace(self.path)


def _quoted(text: str) -> str:
    # A JSON string without control characters and escaped surrogates is a string of TOML.
    if not text.isprintable():
        raise CommandError(f"{text!r} has characters that cannot be printed")
    return json.dumps(text, ensure_ascii=False)
