"""
The build of svcbroker. What the package is stands in pyproject.toml; here is what needs code:
the packages, the build metadata, and a build that leaves nothing behind in the source tree.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent


def git(*arguments: str) -> str | None:
    """What git says of this checkout; nothing where there is no git, or no checkout."""
    if not (HERE / ".git").exists():
        return None
    try:
        return subprocess.run(
            # A checkout that belongs to somebody else may be asked too.
            ["git", "-c", f"safe.directory={HERE}", *arguments],
            cwd=HERE,
            capture_output=True,
            check=True,
            encoding="utf-8",
            env={"TZ": "UTC0", "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def writeMetadata(package: Path) -> None:
    """
    Write C{_build.py} into a copy of the package C{svcbroker}. Without git the copy keeps what it
    has: that of the source distribution.
    """
    values = {
        "commitTimestamp": git(
            "log", "-1", "--format=%cd", "--date=format-local:%Y-%m-%d %H:%M:%S"
        ),
        "branch": git("rev-parse", "--abbrev-ref", "HEAD"),
        "commitHash": git("rev-parse", "HEAD"),
    }
    lines = [f"{name} = {value!r}\n" for name, value in values.items() if value]
    if lines:
        text = '"""Made by the build."""\n\n' + "".join(lines)
        (package / "_build.py").write_text(text, encoding="utf-8")


class BuildWithMetadata(build_py):
    """Adds the build metadata to what is built, never to the source tree."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            writeMetadata(Path(self.build_lib) / "svcbroker")


class SdistWithMetadata(sdist):
    """Adds the build metadata, so that the source distribution builds the same wheel."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        writeMetadata(Path(base_dir) / "svcbroker")


# A build/ directory in the checkout would bring modules back that were removed since.
buildBase = tempfile.mkdtemp(prefix="svcbroker-build-")
atexit.register(shutil.rmtree, buildBase, ignore_errors=True)

setup(
    # A checkout installed with -e is put on the path as a whole, where Twisted finds its plugins.
    package_dir={"": "."},
    packages=[*find_packages(include=["svcbroker", "svcbroker.*"]), "twisted.plugins"],
    package_data={
        "svcbroker": ["py.typed", "*.sql", "*/*.sql", "*/*/*.sql"],
        "svcbroker.carriers.http.descriptions.openapi": ["asyncapi.json"],
        "svcbroker.commands": ["helptexts.json"],
        # The licences of the vendored files are in the metadata.
        "svcbroker.ledgers.evm": ["EventLog.json", "EventLog.sol"],
        "svcbroker.proofs.bundle": ["page/*"],
        "svcbroker.console": ["page/*", "vendor/*.js", "vendor/*.css"],
    },
    include_package_data=False,
    cmdclass={"build_py": BuildWithMetadata, "sdist": SdistWithMetadata},
    options={"build": {"build_base": buildBase}},
    zip_safe=False,
)
