"""
Programs in Java that drive other people's clients, built with Maven.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from unittest import SkipTest

from tests.needed import neededProgram

BUILD_TIME = 300


@cache
def classPath(name: str, client: str) -> str:
    """
    Build a program, once.

    @param name: the folder of its sources, beside this module.
    @param client: the client that Maven has to fetch, for the reason of a skip.
    @return: where its classes are.
    @raise SkipTest: there is no Java, no Maven, or no client to be fetched.
    """
    neededProgram("javac")
    maven = neededProgram("mvn")
    project = Path(tempfile.mkdtemp(prefix=f"svcbroker-{name}-"))
    shutil.copytree(Path(__file__).with_name(name), project, dirs_exist_ok=True)
    command = [maven, "-q", "-B", "package"]
    built = subprocess.run(command, cwd=project, capture_output=True, timeout=BUILD_TIME, text=True)
    if "Could not resolve" in built.stdout or "Could not transfer" in built.stdout:
        raise SkipTest(f"Maven cannot fetch {client}")
    built.check_returncode()
    return f"{project}/target/driver.jar:{project}/target/lib/*"
