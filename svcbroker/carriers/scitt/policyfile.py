"""
The file with the policy of a transparency service: TOML that names the issuers and files with their
keys.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

from attrs import evolve

from ...files import readFile
from ...net.settings import ConfigError
from ...proofs import ProofInvalid
from ...proofs.scitt import (
    MAX_HEADER,
    Issuer,
    IssuerRoot,
    RegistrationPolicy,
    Signing,
    readKeys,
    readRoots,
)

MAX_FILE: Final = 1024 * 1024
"""The most bytes of the file."""

_LEAVES: Final = ("entry", "sha256")
_SIGNINGS: Final[Sequence[Signing]] = ("ES256", "EdDSA")


def readPolicy(setting: str, path: str) -> RegistrationPolicy:
    """
    Read the file that a setting names.

    @raise ConfigError: it, or a file with keys, cannot be used.
    """
    try:
        fields = tomllib.loads(_read(Path(path), MAX_FILE).decode("utf-8"))
        _checkNames(fields, {"leaf", "receipts", "issuers"}, "the file")
        leaf = fields.get("leaf", _LEAVES[0])
        if leaf not in _LEAVES:
            raise ValueError(f"leaf is not one of {', '.join(_LEAVES)}")
        receipts = fields.get("receipts", _SIGNINGS[0])
        if receipts not in _SIGNINGS:
            raise ValueError(f"receipts is not one of {', '.join(_SIGNINGS)}")
        issuers = fields.get("issuers", [])
        if not isinstance(issuers, list) or not issuers:
            raise ValueError("there is no [[issuers]]")
        found = [key for each in issuers for key in _issuersOf(each, Path(path).parent)]
        return RegistrationPolicy.of(found, isHashed=leaf == _LEAVES[1], receipts=receipts)
    except OSError as error:
        raise ConfigError(
            f"{setting}: cannot read {error.filename or path}: {error.strerror}"
        ) from error
    except (ValueError, ProofInvalid) as error:
        raise ConfigError(f"{setting}: {path}: {error}") from None


def _read(path: Path, most: int) -> bytes:
    data = readFile(path, most)
    if len(data) > most:
        raise ValueError(f"{path} has more than {most} bytes")
    return data


def _checkNames(fields: Any, known: set[str], what: str) -> None:
    if not isinstance(fields, Mapping):
        raise ValueError(f"{what} is no table")
    unknown = sorted(fields.keys() - known)
    if unknown:
        raise ValueError(f"{what} has {unknown[0]!r}, but may have {', '.join(sorted(known))}")


def _issuersOf(fields: Any, directory: Path) -> Iterator[Issuer | IssuerRoot]:
    """The keys of one issuer, or its roots."""
    known = {"issuer", "keys", "roots", "kid", "since", "until"}
    _checkNames(fields, known, "one of [[issuers]]")
    name, kid = fields.get("issuer"), fields.get("kid")
    if not isinstance(name, str) or not 1 <= len(name) <= 8192:
        raise ValueError("issuer is not a name of 1 to 8192 characters")
    given = [each for each in ("keys", "roots") if each in fields]
    if len(given) != 1:
        raise ValueError(f"{name} needs either keys or roots")
    path = fields[given[0]]
    if not isinstance(path, str):
        raise ValueError(f"{given[0]} of {name} is not the path of a file")
    since, until = (_timeOf(name, fields, each) for each in ("since", "until"))
    if given == ["roots"]:
        if kid is not None:
            raise ValueError(f"kid of {name} is for keys: its statements have certificates")
        for root in readRoots(_read(directory / path, MAX_FILE)):
            yield IssuerRoot(name=name, root=root, since=since, until=until)
        return
    keys = readKeys(_read(directory / path, MAX_HEADER))
    if kid is not None:
        if not isinstance(kid, str) or not kid or len(keys) > 1:
            raise ValueError(f"kid of {name} is not the name of the one key in {path}")
        keys = [evolve(keys[0], kid=_kidOf(kid))]
    for key in keys:
        yield Issuer(name=name, key=key, since=since, until=until)


def _kidOf(text: str) -> bytes:
    """A name of a key: text, or C{0x} and hex."""
    return bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode("utf-8")


def _timeOf(name: str, fields: Mapping[str, Any], field: str) -> int | None:
    value = fields.get(field)
    if value is None:
        return None
    if type(value) is date:
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ValueError(f"{field} of {name} is no date, nor a time with an offset such as Z")
    return int(value.timestamp() * 1000)
