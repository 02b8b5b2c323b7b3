"""
The public faces: the packages that C{docs/client.rst} names, and what they show.
"""

from __future__ import annotations

import ast
import re
from importlib import import_module
from inspect import isclass, isfunction
from itertools import chain
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import svcbroker
from svcbroker import errors
from tests.test_imports import modules

PAGE = Path(__file__).parent.parent / "docs" / "client.rst"
PUBLIC = re.findall(r"^``(svcbroker\.\w+)``(?:, ``(svcbroker\.\w+)``)?$", PAGE.read_text(), re.M)


USED_ELSEWHERE = {"SETTINGS", "SUMMARY", "LedgerPlugin", "main", "OPERATIONS"}
"""Names for the loader of ledgers, plugins, the console script and tests."""


class FaceTests(SynchronousTestCase):
    """
    The names that packages show: a public one lists them in C{__all__}, and ruff compares that with
    its imports; of any other, its imports are the list.
    """

    def test_facesShowDocumentedNames(self) -> None:
        """Each public package lists what it shows, and each class and function has a docstring."""
        packages = [name for line in PUBLIC for name in line if name]
        self.assertIn("svcbroker.interfaces", packages)
        for package in packages:
            module = import_module(package)
            shown: list[str] = [] if module is errors else module.__all__
            self.assertEqual(len(set(shown)), len(shown), package)
            for name in shown:
                value = getattr(module, name)
                if isclass(value) or isfunction(value):
                    self.assertTrue(value.__doc__, f"{package}.{name}")

    def test_otherFacesShowWhatIsUsed(self) -> None:
        """Each name that a package imports, without C{__all__}, other packages or itself use."""
        words = {path: re.findall(r"\w+", path.read_text("utf-8")) for _, path in modules()}
        for package, path in modules():
            if path.name != "__init__.py" or "__all__" in words[path]:
                continue
            others = [words[each] for each in words if each.parent != path.parent]
            used = {*chain.from_iterable(others), *USED_ELSEWHERE}
            nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))]
            used |= {each.id for each in nodes if isinstance(each, ast.Name)}
            for node in nodes:
                if isinstance(node, ast.ImportFrom) and node.module != "__future__":
                    shown = {alias.asname or alias.name for alias in node.names}
                    self.assertEqual(shown - used, set(), package)

    def test_everyErrorIsExported(self) -> None:
        """Every error of the interface's table, each with codes of its own."""
        self.assertEqual(len(errors.TABLE), 39)
        for error in errors.TABLE:
            self.assertIs(getattr(errors, error.__name__), error)
        self.assertEqual(len({error.code for error in errors.TABLE}), len(errors.TABLE))
        self.assertEqual(len({error.rpcCode for error in errors.TABLE}), len(errors.TABLE))

    def test_versionHasThreeNumbers(self) -> None:
        """The package has a version of three numbers."""
        self.assertEqual([part.isdigit() for part in svcbroker.__version__.split(".")], [True] * 3)
