"""
What commands about CometBFT have in common: finding the engine, and the texts of files for
who runs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ._command import CommandError

ENGINE_VARIABLE: Final = "SVCBROKER_COMETBFT"
"""The variable of the environment that says where the engine is."""

VERSIONS: Final = "0.38."
"""What the versions of the engine that this broker speaks with begin with."""

_TIMEOUT = 20.0
_HOW = (
    "build it (tools/engines/build in a checkout of svcbroker, or: go install "
    "github.com/cometbft/cometbft/cmd/cometbft@v0.38.25), and say where it is with --engine or "
    f"in {ENGINE_VARIABLE}"
)


def findEngine(given: str | None, environment: Mapping[str, str]) -> Path:
    """
    The engine's program: what was given, what the environment names, or C{cometbft} on the path.

    @param given: what stands on the command line.
    @raise CommandError: there is none, or it is of a version that we do not know.
    """
    named = given or environment.get(ENGINE_VARIABLE)
    path = shutil.which(named or "cometbft", path=environment.get("PATH", os.defpath))
    if path is None:
        there = f"{named} is no program" if named else "there is no cometbft on the PATH"
        raise CommandError(f"{there}: {_HOW}")
    try:
        asked = subprocess.run(
            [path, "version"],
            capture_output=True,
            timeout=_TIMEOUT,
            env={"HOME": os.devnull},
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CommandError(f"{path} does not tell its version: {error}") from None
    version = asked.stdout.decode("ascii", "replace").strip()
    if not version.removeprefix("v").startswith(VERSIONS):
        raise CommandError(f"{path} is of version {version[:40]!r}, not {VERSIONS}x: {_HOW}")
    return Path(path).absolute()


def describeLedger(home: Path, rpc: int, engine: Path | None) -> str:
    """
    The C{--ledger} of a broker beside an engine.

    @param rpc: the port of the engine's RPC on this machine.
    @param engine: the program; C{None} where it is run separately.
    """
    settings = [f"home={_escaped(home)}", f"rpc={rpc}"]
    if engine is not None:
        settings.append(f"engine={_escaped(engine)}")
    return ":".join(["cometbft", *settings])


def _escaped(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace(":", "\\:")


def tomlText(text: str) -> str:
    """A text as TOML has it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def unitText(text: str) -> str:
    """A text as a word in a unit of systemd."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{quoted}"' if quoted != text or " " in text else text


def brokerUnit(description: str, command: str, directory: Path, *, user: str = "") -> str:
    """
    A unit of systemd for a broker that runs its engine as its child.

    @param command: what is run, quoted as systemd has it.
    @param directory: all that it writes to.
    @param user: who it runs as; empty for who started systemd.
    """
    return "\n".join(
        [
            "[Unit]",
            f"Description={description.replace('%', '%%')}",
            "After=network-online.target",
            "Wants=network-online.target",
            "",
            "[Service]",
            f"ExecStart={command}",
            f"WorkingDirectory={str(directory).replace('%', '%%')}",
            *([f"User={user}"] if user else []),
            "# The broker ends its engine itself, after what it has still to answer.",
            "KillMode=mixed",
            "Restart=on-failure",
            "RestartSec=2",
            "# More than shutdown-timeout, so that systemd does not cut a stop short.",
            "TimeoutStopSec=45",
            "NoNewPrivileges=yes",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )
