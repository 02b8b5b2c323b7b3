"""
Files that commands read: checkpoints, policies of witnesses, and the keys and names of authors.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from ..chain import Malformed, isUsableKey
from ..files import readFile
from ..proofs import (
    AgeIdentity,
    Checkpoint,
    ProofInvalid,
    isRecipient,
    readCheckpoint,
    readIdentities,
)
from ..proofs.tlog import Policy
from .terminal import CommandError

if TYPE_CHECKING:
    from ..client import AuthorKey


def readBounded(path: Path, limit: int) -> bytes:
    """
    The content of a file.

    @raise CommandError: it has more bytes than it may have.
    """
    data = readFile(path, limit)
    if len(data) > limit:
        raise CommandError(f"{path} is larger than {limit} bytes")
    return data


MAX_SIZE: Final = 64 * 1024 * 1024
"""The largest file of checkpoints, in bytes."""


def readCheckpoints(
    values: Sequence[str], groups: Collection[str], wanted: Collection[str]
) -> Mapping[str, Sequence[Checkpoint]]:
    """
    Read the checkpoints that C{--checkpoint} names, by group.

    @param values: each is HEIGHT:HASH, or a file with one to a line, or with what the operation
        C{checkpoint} answered to a line.
    @param groups: the groups that there are.
    @param wanted: those that are looked at; empty for all. Checkpoints of others are left out.
    @raise CommandError: a value is neither, does not tell its group, or is a file of more than
        L{MAX_SIZE}: what is left out would not be compared.
    """
    found: dict[str, list[Checkpoint]] = {}
    for value in values:
        for line, text in _lines(value):
            try:
                checkpoint, group = readCheckpoint(text), _group(text)
            except ProofInvalid as error:
                raise CommandError(f"--checkpoint: {line}: {error}") from None
            if group is None:
                only = wanted or groups
                if len(only) != 1:
                    raise CommandError(
                        f"--checkpoint: {line}: which of the groups is it of? Give --group"
                    )
                (group,) = only
            if not wanted or group in wanted:
                found.setdefault(group, []).append(checkpoint)
    return found


def _lines(value: str) -> Iterator[tuple[str, bytes]]:
    try:
        Checkpoint.parse(value)
    except ValueError:
        pass
    else:
        yield value, value.encode("ascii")
        return
    path = Path(value)
    if not path.is_file():
        raise CommandError(f"--checkpoint: {value!r} is neither HEIGHT:HASH nor a file")
    lines = readBounded(path, MAX_SIZE).splitlines()
    if not any(map(bytes.strip, lines)):
        # Nothing would be compared, and the chain would look good.
        raise CommandError(f"--checkpoint: {path} is empty")
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield f"{path}, line {number}", line


def _group(text: bytes) -> str | None:
    """The group that an answer of the operation says it is of."""
    if text.lstrip()[:1] != b"{":
        return None
    document = json.loads(text)
    document = document.get("result", document)
    group = document.get("group")
    return group if isinstance(group, str) else None


def readPolicy(path: Path) -> Policy:
    """
    Read a file of C{c2sp.org/tlog-policy}.

    @raise CommandError: it is none.
    """
    try:
        return Policy.parse(readFile(path))
    except Malformed as error:
        raise CommandError(f"{path}: {error}") from None


_MAX_FILE = 1 << 20


def readAuthorKey(path: Path, ask: Callable[[str], str] = getpass) -> AuthorKey:
    """
    Read an author's private key from a PEM file.

    @param ask: asks for the passphrase of one that is encrypted.
    @raise CommandError: it is no such file.
    """
    from ..client import AuthorKey, PassphraseMissing

    try:
        try:
            return AuthorKey.read(path)
        except PassphraseMissing:
            return AuthorKey.read(path, ask(f"Passphrase of {path}: ").encode("utf-8"))
    except ValueError as error:
        raise CommandError(str(error)) from None


def readAuthors(path: Path) -> Mapping[bytes, str]:
    """
    Read the names of authors: a TOML file with a line C{name = "KEY"} for each. KEY is a public key
    in hexadecimal digits or the name of a PEM file with a key, from the directory of the file.

    @return: names by public keys.
    @raise CommandError: it is no such file.
    """
    try:
        found = tomllib.loads(readBounded(path, _MAX_FILE).decode("utf-8"))
    except ValueError as error:
        raise CommandError(f'{path} has no lines of the form name = "KEY": {error}') from None
    names: dict[bytes, str] = {}
    for name, value in found.items():
        key = _publicKey(path, name, value)
        if key in names:
            raise CommandError(f"{path}: {names[key]} and {name} have the same key")
        names[key] = name
    return names


def readIdentityFile(path: str) -> Sequence[AgeIdentity]:
    """
    Read a file with identities that open closed events.

    @raise CommandError: it is no such file.
    """
    try:
        return readIdentities(readBounded(Path(path), _MAX_FILE).decode("utf-8"))
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from None


ORGANISATION: Final = "org:"
"""The beginning of a name of C{--to} that the directory on the log knows."""


def readRecipients(
    values: Sequence[str], path: str | None, find: Callable[[str], Sequence[str]]
) -> list[str]:
    """
    Find the recipients that C{--to} says: each is one, a name, or a file with some.

    @param path: a file with the names of recipients.
    @param find: finds those of an organisation.
    @raise CommandError: a value is none of these, or a line of a file is malformed.
    """
    names = {} if path is None else _recipientsOfFile(Path(path))
    found: list[str] = []
    for value in values:
        if isRecipient(value):
            found.append(value)
        elif value.startswith(ORGANISATION):
            found += find(value.removeprefix(ORGANISATION))
        elif value in names:
            found += names[value]
        elif Path(value).is_file():
            found += (each for those in _recipientsOfFile(Path(value)).values() for each in those)
        else:
            known = "no name, without --recipients" if path is None else f"no name in {path}"
            raise CommandError(f"--to: {value!r} is no recipient (age1...), {known}, and no file")
    return found


def _recipientsOfFile(path: Path) -> Mapping[str, list[str]]:
    return recipientsIn(readBounded(path, _MAX_FILE), str(path))


def recipientsIn(data: bytes, source: str) -> Mapping[str, list[str]]:
    """
    The recipients in a text, by their names. A line C{age1...} without a name is as age has it.

    @param source: what the text is, for messages.
    @raise CommandError: a line is malformed, or there is no recipient.
    """
    names: dict[str, list[str]] = {}
    try:
        lines = data.decode("utf-8").splitlines()
    except ValueError:
        raise CommandError(f"{source} is not UTF-8") from None
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if len(words) > 2 or not isRecipient(words[-1]):
            raise CommandError(f"{source}, line {number}: it is not NAME age1..., and not age1...")
        names.setdefault(words[0], []).append(words[-1])
    if not names:
        raise CommandError(f"{source}: there is no recipient in it")
    return names


def _publicKey(path: Path, name: str, value: Any) -> bytes:
    if not isinstance(value, str):
        raise CommandError(f"{path}: the key of {name} is not a text")
    try:
        key = bytes.fromhex(value)
    except ValueError:
        key = b""
    if len(key) == 32:
        if not isUsableKey(key):
            raise CommandError(f"{path}: the key of {name} is not a usable Ed25519 key")
        return key
    source = path.parent / value
    if not source.is_file():
        raise CommandError(
            f"{path}: the key of {name} is neither 64 hexadecimal digits nor a PEM file"
        )
    data = readBounded(source, _MAX_FILE)
    if b"PRIVATE KEY" in data:
        return readAuthorKey(source).public
    try:
        pair: Any = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        pair = None
    if not isinstance(pair, Ed25519PublicKey):
        raise CommandError(f"{source} has no Ed25519 key")
    return pair.public_bytes_raw()
