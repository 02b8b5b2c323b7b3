"""
What developers run: C{nox --list} shows the sessions, C{nox -s "tests(broker)"} runs one room's
tests.

Every session uses the Python that runs nox, so that one environment serves all of them:
C{python3 -m venv .venv && .venv/bin/pip install -e '.[dev]'}. C{.ci/run} runs the same sessions.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nox

HERE = Path(__file__).parent
ROOMS = sorted(path.parent.name for path in HERE.glob("tests/*/__init__.py"))

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types"]


def python(session: nox.Session, *arguments: str) -> None:
    """Run a module with the Python that runs nox."""
    session.run(sys.executable, "-m", *arguments)


@nox.session
@nox.parametrize("room", ROOMS, ids=ROOMS)
def tests(session: nox.Session, room: str) -> None:
    """Run the tests of one room: nox -s "tests(broker)"."""
    python(session, "twisted.trial", *(session.posargs or [f"tests.{room}"]))


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, format and news fragments."""
    python(session, "ruff", "check", ".")
    python(session, "ruff", "format", "--check", ".")
    python(session, "towncrier", "build", "--draft", "--version", "next")


@nox.session
def types(session: nox.Session) -> None:
    """Check types."""
    python(session, "mypy")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the pages and the API documentation; warnings are errors."""
    target = Path(session.create_tmp())
    python(session, "sphinx", "-W", "--keep-going", "-q", "docs", str(target / "html"))
    python(session, "pydoctor", "--quiet", f"--html-output={target / 'html' / 'api'}")


@nox.session
def simulation(session: nox.Session) -> None:
    """Simulate PBFT with faults for two minutes, or as the arguments say; CI: --seeds 1000."""
    python(session, "tools.simulate", *(session.posargs or ["--seconds", "120"]))


@nox.session
def packages(session: nox.Session) -> None:
    """Build what is released into dist/, and check it; arguments are those of the tool."""
    session.run(
        "tools/packages/build", *session.posargs, external=True, env={"PYTHON": sys.executable}
    )


@nox.session
def pins(session: nox.Session) -> None:
    """Pin the libraries that packages and images carry; newer ones with -- --upgrade."""
    session.env["CUSTOM_COMPILE_COMMAND"] = "nox -s pins"
    python(
        session,
        *("piptools", "compile", "--quiet", "--generate-hashes", "--strip-extras"),
        *("--allow-unsafe", "--no-emit-index-url", "--no-emit-find-links"),
        *("--no-emit-trusted-host", "--output-file=deploy/requirements.txt"),
        *session.posargs,
        "pyproject.toml",
    )


@nox.session
def full(session: nox.Session) -> None:
    """Run everything that CI runs."""
    session.run(".ci/run", *session.posargs, external=True)
