"""
What developers run: C{nox --list} shows the sessions, C{nox -s "tests(broker)"} runs one room's
tests.

Every session but C{pythons} uses the Python that runs nox, so that one environment serves all of
them: C{python3 -m venv .venv && .venv/bin/pip install -e '.[dev]'}. C{.ci/run} runs the same
sessions, but for C{pythons}, C{examples}, C{seeds}, C{kills}, C{chains} and C{damage}, which are
run every night, as an hour of C{consistency} is.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from fnmatch import fnmatchcase
from pathlib import Path

import nox

HERE = Path(__file__).parent
ROOMS = sorted(path.parent.name for path in HERE.glob("tests/*/__init__.py"))
SLOW = (
    # What starts daemons, engines, browsers and other programs.
    *("functional.*", "interop.*", "benchmarks.*", "ledgers.*.test_real_*"),
    *("client.test_packaging", "commands.test_commandline", "ledgers.cometbft.test_packages"),
    # What tries many seeds, changes, crashes, lengths or damaged files.
    *("access.authenticators.test_jwt", "access.test_accounttext", "access.test_confidentiality"),
    *("access.test_existence", "access.test_grants", "archive.test_audit", "archive.test_bytes"),
    *("archive.test_erased", "archive.test_eraser", "archive.test_log", "archive.test_logfiles"),
    *("archive.test_stream", "archive.test_sweep", "broker.subscriptions.test_expiry"),
    *("broker.subscriptions.test_filters", "broker.subscriptions.test_reading"),
    *("broker.test_witnessing", "carriers.http.test_differences", "carriers.http.test_jsonrpc"),
    *("carriers.http.test_site", "carriers.http.test_transports", "carriers.http.test_turns"),
    *("carriers.mqtt.test_batches", "carriers.mqtt.test_exactly_once"),
    *("carriers.mqtt.test_hostile", "carriers.mqtt.test_overlapping", "carriers.stomp.test_fuzz"),
    *("carriers.webhook.test_batches", "chain.test_encoding", "chain.test_execution3"),
    *("chain.test_generator", "chain.test_merkle", "chain.test_signed_mutations"),
    *("chain.test_vectors3", "client.test_core", "client.test_sse", "commands.test_archive"),
    *("commands.test_contradict", "ledgers.cometbft.test_outbox_any"),
    *("ledgers.cometbft.test_restoring", "ledgers.cometbft.test_snapshots"),
    *("ledgers.copy.test_refusal", "ledgers.evm.test_batchsource", "ledgers.evm.test_evmledger"),
    *("ledgers.pbft.test_change", "ledgers.pbft.test_opening", "ledgers.pbft.test_replicaset"),
    *("ledgers.pbft.test_said_once", "ledgers.test_damage", "proofs.cometbft.*"),
    "proofs.test_contradictions",
    *("proofs.test_examples", "proofs.test_reading", "proofs.test_tampering"),
    *("proofs.tlog.test_note", "proofs.witness.test_witness", "simulation.*"),
    *("storage.test_damage", "storage.test_failure", "storage.test_history"),
    *("storage.test_property", "test_cloudevents"),
    # What runs tests on several ledgers or a second time, or looks through all code or everything
    # in memory.
    *("ledgers.test_contract", "ledgers.copy.test_contract", "carriers.http.test_klein"),
    *("carriers.http.test_descriptions", "carriers.test_freed", "daemon.test_memory"),
    *("test_docs", "test_structure", "test_words"),
)
"""Patterns of the modules of tests that L{quick} leaves out: a third of all tests, and most of
their time. What takes a second of a processor and more is one of them."""

OTHER_PYTHONS = ["3.12", "3.13"]
"""The versions that are supported beside the oldest one, which C{.ci/run} uses."""

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types"]


def python(session: nox.Session, *arguments: str, env: dict[str, str] | None = None) -> None:
    """Run a module with the Python that runs nox."""
    session.run(sys.executable, "-m", *arguments, env=env or {})


@nox.session
@nox.parametrize("room", ROOMS, ids=ROOMS)
def tests(session: nox.Session, room: str) -> None:
    """Run the tests of one room: nox -s "tests(broker)"."""
    python(session, "twisted.trial", *(session.posargs or [f"tests.{room}"]))


@nox.session
def quick(session: nox.Session) -> None:
    """Run what takes a minute on two processors: style, types, and two of three tests."""
    python(session, "ruff", "check", "--quiet", ".")
    python(session, "ruff", "format", "--check", "--quiet", ".")
    python(session, "mypy")
    modules = [
        ".".join(path.relative_to(HERE).with_suffix("").parts)
        for path in sorted(HERE.glob("tests/**/test_*.py"))
    ]
    chosen = [
        each
        for each in modules
        if not any(fnmatchcase(each, f"tests.{pattern}") for pattern in SLOW)
    ]
    for pattern in SLOW:
        if not any(fnmatchcase(each, f"tests.{pattern}") for each in modules):
            session.warn(f"no module of tests is {pattern}: it may run here under another name")
    jobs = f"--jobs={os.cpu_count() or 1}"
    session.env["SVCBROKER_EXAMPLES"] = "20"
    python(session, "twisted.trial", jobs, "--reporter=summary", *chosen)


def interpreter(version: str) -> str | None:
    """The path of a Python: the latest that pyenv has built, or one on the C{PATH}."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    # What pyenv has on the PATH runs only versions that were chosen for a directory.
    built = root.glob(f"versions/{version}.*/bin/python{version}")
    latest = max(
        built, key=lambda path: re.findall(r"\d+", path.parts[-3])[2].zfill(3), default=None
    )
    return shutil.which(f"python{version}") if latest is None else str(latest)


@nox.session
@nox.parametrize("version", OTHER_PYTHONS, ids=OTHER_PYTHONS)
def pythons(session: nox.Session, version: str) -> None:
    """Run all tests with another Python, every night; arguments are those of .ci/run."""
    found = interpreter(version)
    if found is None:
        session.error(f"there is no Python {version}: pyenv install {version} makes one")
    root = Path(session.create_tmp())
    for name in ("bin", "clone"):
        shutil.rmtree(root / name, ignore_errors=True)
    program = root / "bin" / "python3"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{found}" "$@"\n')
    program.chmod(0o755)
    session.run("git", "clone", "--quiet", str(HERE), str(root / "clone"), external=True)
    session.chdir(root / "clone")
    environment = {
        "PATH": os.pathsep.join([str(program.parent), os.environ["PATH"]]),
        # That of the session may be too long for the path of a socket.
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
    }
    session.run(".ci/run", *(session.posargs or ["tests"]), external=True, env=environment)


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
    """
    Build the pages and the API documentation; warnings are errors. C{.ci/run} only looks for
    warnings of the API documentation: --html-writer=apidocs.WarningWriter.
    """
    target = Path(session.create_tmp())
    python(
        session, "sphinx", "-W", "--keep-going", "--fresh-env", "-q", "docs", str(target / "html")
    )
    output = f"--html-output={target / 'html' / 'api'}"
    session.run(sys.executable, "docs/apidocs.py", "--quiet", output, *session.posargs)


@nox.session
def simulation(session: nox.Session) -> None:
    """Simulate PBFT with faults for two minutes, or as the arguments say; CI: --seeds 200."""
    python(session, "tools.simulate", *(session.posargs or ["--seconds", "120"]))


@nox.session
def damage(session: nox.Session) -> None:
    """Change 20,000 bits of each kind of small store, and judge what starts on it: every night."""
    flips = {"SVCBROKER_SWEEP_FLIPS": "20000"}
    session.run(sys.executable, "-m", "twisted.trial", "tests.archive.test_sweep", env=flips)


@nox.session
def kills(session: nox.Session) -> None:
    """Kill brokers and witnesses fifty times while they are used: every night."""
    tests = (
        *("functional.test_clients", "functional.test_kills", "functional.test_said_once"),
        *("proofs.witness.test_witness", "interop.test_follow"),
        "interop.test_scitt_service.ScittTests.test_treeIsTheSameAfterKillsAndLosses",
    )
    killed = {
        "SVCBROKER_TEST_KILLS": "50",
        "SVCBROKER_CLIENT_KILLS": "20",
        "SVCBROKER_CLIENT_EVENTS": "20000",
    }
    python(session, "twisted.trial", *(f"tests.{each}" for each in tests), env=killed)


@nox.session
def consistency(session: nox.Session) -> None:
    """Judge histories of real deployments under faults, or as the arguments say: every night."""
    python(session, "tools.consistency", *(session.posargs or ["--seconds", "3600"]))


@nox.session
def chains(session: nox.Session) -> None:
    """Try ledgers on four real nodes, and histories of EVM chains for half an hour: every night."""
    contract = "test_real_contract"
    cases = (f"evm.{contract}.ValidatorTests", f"cometbft.{contract}.FourNodesTests")
    tests = [f"tests.ledgers.{each}" for each in cases]
    tests.append("tests.functional.test_scitt_networks")
    python(session, "twisted.trial", *tests, env={"SVCBROKER_LONG": "1"})
    deployments = ["--deployment", "validators", "--deployment", "reorganized"]
    python(session, "tools.consistency", *deployments, *(session.posargs or ["--seconds", "1800"]))


@nox.session
def examples(session: nox.Session) -> None:
    """Try 25 times as many examples of each property of the tests: every night."""
    modules = [
        ".".join(path.relative_to(HERE).with_suffix("").parts)
        for path in sorted(HERE.glob("tests/**/test_*.py"))
        if re.search(
            r"hypothesis|schemathesis|EXAMPLES|MUTATIONS|examples\(", path.read_text("utf-8")
        )
    ]
    tried = {"SVCBROKER_EXAMPLES": "1000"}
    python(session, "twisted.trial", f"--jobs={os.cpu_count() or 1}", *modules, env=tried)


@nox.session
def seeds(session: nox.Session) -> None:
    """Simulate thousands of seeds, which reach every probe, and find all mutations; every night."""
    # Other seeds each night.
    first = ["--first", str(10_000 * int(time.time() // 86_400))]
    python(
        session, "tools.simulate", "--probes", *(session.posargs or ["--seeds", "10000", *first])
    )
    python(session, "tools.simulate", "--mutations", "--focus", "--seeds", "200")


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
