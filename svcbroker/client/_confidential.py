"""
An author's key, by which events are signed; and confidential events: contents are closed to
recipients before they leave this process, and opened by identities after they have come back. The
broker has neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from ..files import readFile
from ..model import ENCRYPTED, PADDING


class PassphraseMissing(ValueError):
    """The key's file is encrypted, and no passphrase was given."""


@frozen
class AuthorKey:
    """
    An author's private key: Ed25519.

    @ivar public: the public key, 32 bytes: who the author is to readers.
    @ivar statement: the highest version of statements that it signs: 2, or 1 for networks that do
        not have format 4 yet. Version 2 is for events with an expected sequence number, which one
        of version 1 leaves open.
    """

    public: bytes
    _private: Any
    statement: int = 2

    @classmethod
    def read(cls, path: str | Path, password: bytes | None = None, statement: int = 2) -> AuthorKey:
        """
        Read a key in PEM, as C{openssl genpkey -algorithm ed25519} makes it.

        @param password: that of an encrypted file.
        @param statement: see L{AuthorKey}.
        @raise OSError: the file cannot be read.
        @raise PassphraseMissing: it is encrypted, and there is no password.
        @raise ValueError: it is not such a key, or the password is wrong; C{statement} is neither
            1 nor 2.
        """
        # Clients that sign nothing do without cryptography.
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        if statement not in (1, 2):
            raise ValueError("statement: is neither 1 nor 2")
        data = readFile(path)
        isEncrypted = b"ENCRYPTED" in data
        if isEncrypted and password is None:
            raise PassphraseMissing(f"{path} is encrypted: its passphrase is needed")
        try:
            private: Any = load_pem_private_key(data, password if isEncrypted else None)
        except (TypeError, ValueError, UnsupportedAlgorithm):
            if isEncrypted:
                raise ValueError(f"{path}: the passphrase is not the right one") from None
            private = None
        if not isinstance(private, Ed25519PrivateKey):
            raise ValueError(f"{path} has no Ed25519 private key")
        return cls(private.public_key().public_bytes_raw(), private, statement)

    def sign(
        self,
        *,
        chain: bytes,
        topic: str,
        content: bytes,
        extensions: Mapping[str, str],
        idempotencyKey: str | None,
        signedAt: int,
        expectedSequence: int | None = None,
    ) -> dict[str, Any]:
        """
        Sign an event.

        @param chain: the id of the chain that it is published to.
        @param signedAt: the time, in milliseconds since the epoch.
        @param expectedSequence: the sequence number that the topic must have.
        @return: the parameters of the publish that say so.
        """
        from ..chain import statement

        signed = statement(
            chain,
            topic,
            content,
            signedAt,
            idempotencyKey,
            extensions,
            1 if expectedSequence is None else self.statement,
            expectedSequence,
        )
        return {
            "author": self.public.hex(),
            "signature": self._private.sign(signed).hex(),
            "signedAt": signedAt,
        }


if TYPE_CHECKING:
    from ..proofs import AgeIdentity


def _pyrage() -> Any:
    """
    The library that closes.

    @raise ValueError: it is not installed.
    """
    try:
        import pyrage
    except ImportError:
        raise ValueError(
            "to close events, pyrage is needed: pip install 'svcbroker[encryption]'"
        ) from None
    return pyrage


def newIdentity() -> tuple[str, str]:
    """
    Make an identity.

    @return: it, and the recipient that others close events to.
    @raise ValueError: pyrage is not installed.
    """
    identity = _pyrage().x25519.Identity.generate()
    return str(identity), str(identity.to_public())


def checkRecipients(recipients: Iterable[str]) -> tuple[str, ...]:
    """
    Check whom events are to be closed to.

    @raise ValueError: one is no recipient, there are too many, or pyrage is not installed.
    """
    if isinstance(recipients, str):
        raise ValueError("recipients: give a list of recipients, not one text")
    found = tuple(dict.fromkeys(recipients))
    if not found:
        return ()
    from ..proofs import MAX_RECIPIENTS, isRecipient

    for each in found:
        if not isRecipient(each):
            raise ValueError(f"recipients: {each[:80]!r} is no recipient of age: age1...")
    # age may add one that is nobody's.
    if len(found) >= MAX_RECIPIENTS:
        raise ValueError(f"recipients: there are {len(found)}, and at most {MAX_RECIPIENTS - 1}")
    _pyrage()
    return found


EXTENSIONS: Final = {ENCRYPTED: "age", PADDING: "spaces"}
"""The extensions of events with contents that L{closed} gave."""


def closed(content: bytes, recipients: Sequence[str]) -> bytes:
    """Pad a content, and close it to recipients."""
    from ..proofs import padded

    pyrage = _pyrage()
    parsed = [pyrage.x25519.Recipient.from_str(each) for each in recipients]
    made: bytes = pyrage.encrypt(padded(content), parsed)
    return made


class IdentityFile:
    """
    The identities in a file, which is read again after it was changed: identities that are added in
    a rotation are used by the clients that run.
    """

    def __init__(self, path: str | Path) -> None:
        """
        @raise OSError: it cannot be read.
        @raise ValueError: it has a line that is no identity.
        """
        self._path = Path(path)
        self._stamp = self._look()
        self._identities = self._read()

    def identities(self) -> Sequence[AgeIdentity]:
        """The newest ones; while the file is gone or malformed, those before."""
        with suppress(OSError, ValueError):
            stamp = self._look()
            if stamp != self._stamp:
                self._identities = self._read()
                self._stamp = stamp
        return self._identities

    def _look(self) -> tuple[int, ...]:
        found = self._path.stat()
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _read(self) -> Sequence[AgeIdentity]:
        from ..proofs import readIdentities

        try:
            return readIdentities(readFile(self._path).decode("utf-8"))
        except ValueError as error:
            raise ValueError(f"{self._path}: {error}") from None


def loadIdentities(
    identities: str | Path | Sequence[AgeIdentity] | None,
) -> Callable[[], Sequence[AgeIdentity]]:
    """
    A function that gives the identities that the option of a client says, as they are now.

    @raise OSError: their file cannot be read.
    @raise ValueError: it has a line that is no identity.
    """
    if isinstance(identities, str | Path):
        return IdentityFile(identities).identities
    known = identities or ()
    return lambda: known
