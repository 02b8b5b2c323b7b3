"""
The public faces: the packages that C{docs/client.rst} names, and what they show.
"""

from __future__ import annotations

import re
from importlib import import_module
from inspect import isclass, isfunction
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import svcbroker
from svcbroker import errors

PAGE = Path(__file__).parent.parent / "docs" / "client.rst"
PUBLIC = re.findall(r"^``(svcbroker\.\w+)``(?:, ``(svcbroker\.\w+)``)?$", PAGE.read_text(), re.M)


class FaceTests(SynchronousTestCase):
    """
    C{__all__} is the one list of what a package shows: ruff refuses a name in it that is not
    imported, and an import that is not in it.
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
