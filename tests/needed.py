"""
What some tests need and README's second command does not install: programs, and packages of
extras. A test is skipped where one is missing.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec

from twisted.trial.unittest import SkipTest


def neededProgram(name: str) -> str:
    """
    The path of a program.

    @raise SkipTest: it is not installed.
    """
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        raise SkipTest(f"{name} is not installed")
    return found


def needPackage(name: str, extra: str) -> None:
    """
    Ask for a package of Python.

    @param name: as it is imported.
    @param extra: which extra of svcbroker has it.
    @raise SkipTest: it is not installed.
    """
    if find_spec(name) is None:
        raise SkipTest(f"{name} is not installed (extra: {extra})")
