"""
Clients that run on Node.
"""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SkipTest

from tests.needed import neededProgram


def nodeModules(*packages: str) -> str:
    """
    The folder that npm has installed packages in: one of those that the environment variable
    C{NODE_PATH} names, or C{node_modules} in the working directory.

    @raise SkipTest: Node or a package is missing.
    """
    neededProgram("node")
    named = filter(None, os.environ.get("NODE_PATH", "").split(os.pathsep))
    for folder in [*named, "node_modules"]:
        if all(Path(folder, package).is_dir() for package in packages):
            return str(Path(folder).absolute())
    raise SkipTest(f"not installed: npm install {' '.join(packages)}")
