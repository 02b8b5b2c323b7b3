"""
Reading what the facts are made of: packages, files, descriptions of ledgers and engines' homes.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import ssl
import stat
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from cryptography.x509 import Name, load_pem_x509_certificates
from OpenSSL import SSL

from ..authenticators.mosquitto import USUAL_ITERATIONS, PasswordHash, readPasswords
from ..files import openFile, readFile
from ..interfaces import InvalidDescription
from ..net.descriptions import absolutePath, readDescription
from ..net.proxied import ProxiedEndpoint
from ..net.tls import TLSServerEndpoint
from ..version import readVersion
from ._accounts import PasswordFileFacts
from ._directory import FileFacts
from ._software import EngineFacts, SoftwareFacts

COMETBFT: Final = "cometbft"
"""The kind of the ledger beside an engine."""

SOCKET: Final = "abci.sock"
"""The broker's socket in an engine's home, where the ledger names no other."""

_MOSQUITTO: Final = "mosquitto"
_UNIX: Final = "unix://"
_DISTRIBUTION: Final = "svcbroker"
_KEY: Final = b"PRIVATE KEY-----"
_MAX_PEM: Final = 1024 * 1024


def readSoftware() -> SoftwareFacts:
    """What svcbroker runs on."""
    try:
        requirements = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        requirements = []  # a checkout
    plain = [each for each in requirements if ";" not in each]
    openssl = SSL.OpenSSL_version(SSL.OPENSSL_VERSION).decode("ascii", "replace").split()
    return SoftwareFacts(
        version=readVersion().version,
        python=platform.python_version(),
        requirements=plain,
        installed={name: _versionOf(name) for name in map(_nameOf, plain)},
        libraries={"SQLite": sqlite3.sqlite_version, "OpenSSL": openssl[1]},
    )


@lru_cache(maxsize=1)
def _roots() -> frozenset[Name]:
    file = Path(ssl.get_default_verify_paths().cafile or "")
    try:
        with warnings.catch_warnings():
            # Some roots are older than rules that cryptography checks now.
            warnings.simplefilter("ignore")
            return frozenset(each.subject for each in load_pem_x509_certificates(file.read_bytes()))
    except (OSError, ValueError):
        return frozenset()


def isRoot(name: Name) -> bool:
    """Whether a name is that of an authority that this machine trusts."""
    return name in _roots()


def kindOf(description: str) -> str:
    """The kind of ledger that a description names; empty where it names none."""
    try:
        return readDescription(description).name
    except InvalidDescription:
        return ""


def readEngine(group: str, description: str, engineProblem: Callable[[Path], str]) -> EngineFacts:
    """
    Look at the home of a group's engine.

    @param engineProblem: tells what is wrong with an engine's program.
    """
    settings = readDescription(description).settings
    home, program = Path(settings.get("home", "")), settings.get("engine")
    config = home / "config/config.toml"
    try:
        engine = tomllib.loads(readFile(config).decode("utf-8"))
        rpc, application = str(engine["rpc"]["laddr"]), str(engine["proxy_app"])
        if application.startswith(_UNIX):
            application = _socketAt(Path(application.removeprefix(_UNIX)))
    except (OSError, ValueError, LookupError, TypeError) as error:
        reason = getattr(error, "strerror", None) or "it is no configuration of CometBFT"
        return EngineFacts(group=group, home=home, error=f"{config} cannot be read: {reason}")
    keys = [home / "config" / name for name in ("priv_validator_key.json", "node_key.json")]
    return EngineFacts(
        group=group,
        home=home,
        programError="" if program is None else engineProblem(Path(program)),
        readableKeys=[path for path in keys if path.exists() and path.stat().st_mode & 0o077],
        rpc=rpc,
        application=application,
        socket=_socketAt(Path(settings.get("socket", home / SOCKET))),
    )


def _socketAt(path: Path) -> str:
    """A socket in the engine's notation, the same for each path that leads to it."""
    return f"{_UNIX}{path.resolve()}"


def filesIn(directory: Path) -> Iterator[FileFacts]:
    """
    All files below a directory.

    @raise OSError: it cannot be read.
    """
    for folder, _, names in os.walk(directory, onerror=_raise):
        for name in names:
            path = Path(folder, name)
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue  # a running daemon has removed it
            if stat.S_ISREG(status.st_mode):
                mode = stat.S_IMODE(status.st_mode)
                relative = str(path.relative_to(directory))
                yield FileFacts(relative, mode, status.st_uid, status.st_size)


def _raise(error: OSError) -> None:
    raise error


def withoutWrappers(endpoint: Any) -> tuple[Any, bool]:
    """What an endpoint listens by, and whether clients have to come through a proxy."""
    isProxied = isinstance(endpoint, ProxiedEndpoint)
    while isinstance(endpoint, ProxiedEndpoint | TLSServerEndpoint):
        endpoint = endpoint.endpoint
    return endpoint, isProxied


def isReadable(path: Path) -> bool:
    """Whether every user of this machine may read a file."""
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def readPasswordFile(text: str) -> PasswordFileFacts | None:
    """
    Read the facts about mosquitto's password file.

    @param text: the description of an authenticator.
    @return: C{None} where it is of another kind.
    """
    try:
        description = readDescription(text)
        path = absolutePath(description.settings.get("passwords", ""))
    except (InvalidDescription, ValueError):
        return None  # a mistake of the configuration
    if description.name != _MOSQUITTO:
        return None
    hashes: Mapping[str, PasswordHash] = {}
    error = ""
    try:
        hashes = readPasswords(path)
    except InvalidDescription as invalid:
        error = str(invalid)
    cheap = [name for name, each in hashes.items() if each.iterations < USUAL_ITERATIONS]
    return PasswordFileFacts(
        file=path, error=error, users=len(hashes), cheap=cheap, isReadable=isReadable(path)
    )


def hasKey(path: Path) -> bool:
    """Whether a file has a private key."""
    with openFile(path) as file:
        return _KEY in file.read(_MAX_PEM)


def _nameOf(requirement: str) -> str:
    return requirement.partition("[")[0].partition(">")[0].strip()


def _versionOf(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
