"""
The grain of the code: functions, modules and their public names have sizes that a reader can hold.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from twisted.trial.unittest import SynchronousTestCase

from tests.test_imports import modules
from tools.structure import codeLines, functionLengths

MAX_LINES = 60
MAX_NAMES = 20
MIN_LINES = 40
MANY = "Many names: "
SMALL = "A module of its own: "
"""The beginnings of the sentence in a module's docstring that says why it is no fault there."""


@cache
def parsed() -> dict[str, tuple[str, ast.Module]]:
    """The text and the tree of each module, but for the faces of packages."""
    found = {}
    for name, path in modules():
        if path.name != "__init__.py":
            text = path.read_text("utf-8")
            found[name] = (text, ast.parse(text))
    return found


def publicNames(tree: ast.Module) -> Iterator[str]:
    """The public classes and functions of a module."""
    for node in tree.body:
        named = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, named) and not node.name.startswith("_"):
            yield node.name


class SizeTests(SynchronousTestCase):
    """
    Sizes, and the reasons of exceptions.
    """

    def test_functionsAreShort(self) -> None:
        """No function is longer than 60 lines, its docstring apart."""
        long = [name for name, (_, tree) in parsed().items() if max(lengths(tree)) > MAX_LINES]
        self.assertEqual(long, [])

    def test_publicNamesAreFew(self) -> None:
        """A module has at most 20 public classes and functions, or says why not."""
        for name, (_, tree) in parsed().items():
            isOver = len([*publicNames(tree)]) > MAX_NAMES
            self.assertEqual(isOver, MANY in docstring(tree), name)

    def test_modulesAreThings(self) -> None:
        """A module has at least 40 lines of code, or says why it is one."""
        for name, (text, tree) in parsed().items():
            isUnder = len(codeLines(text, tree)) < MIN_LINES and not name.endswith("__main__")
            self.assertEqual(isUnder, SMALL in docstring(tree), name)


def lengths(tree: ast.Module) -> Iterator[int]:
    """The lengths of all functions of a module, and 0."""
    yield 0
    yield from functionLengths(tree)


def docstring(tree: ast.Module) -> str:
    """The docstring of a module, in one line."""
    return " ".join((ast.get_docstring(tree) or "").split())
