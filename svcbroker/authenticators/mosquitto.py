"""
The authenticator of mosquitto's password and ACL files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from attrs import evolve, frozen
from twisted.cred.credentials import IUsernamePassword
from twisted.cred.error import UnauthorizedLogin
from zope.interface import implementer

from ..files import readFile
from ..interfaces import AuthenticatorContext, IAuthenticator, Identity, InvalidDescription
from ..net.deferreds import asDeferred
from ..net.descriptions import Readers, absolutePath, readValues
from ._aclfile import AclFile, parseAcl
from ._lines import LineError
from ._passwordfile import USUAL_ITERATIONS, PasswordHash, parsePasswords, unknownHash

__all__ = [
    "SETTINGS",
    "SUMMARY",
    "USUAL_ITERATIONS",
    "MosquittoAuthenticator",
    "PasswordHash",
    "configure",
    "readPasswords",
]

T = TypeVar("T")

SUMMARY: Final = "The users of mosquitto's password and ACL files."

SETTINGS: Final = {
    "passwords": "the password file, as mosquitto_passwd writes it (required)",
    "acl": "the ACL file, which says who may read and write what (required)",
}

_READERS: Final[Readers] = dict.fromkeys(SETTINGS, (absolutePath, "a file's path"))


def configure(settings: Mapping[str, str]) -> Callable[[AuthenticatorContext], IAuthenticator]:
    """
    See L{IAuthenticatorFactory.configure<svcbroker.interfaces.IAuthenticatorFactory.configure>}.
    """
    paths = readValues("the mosquitto authenticator", settings, _READERS)
    for key in SETTINGS:
        if key not in paths:
            raise InvalidDescription(
                f"{key} is needed: {SETTINGS[key].removesuffix(' (required)')}"
            )
    return partial(MosquittoAuthenticator, paths["passwords"], paths["acl"])


@frozen
class _Users:
    """
    What the two files hold.

    @ivar unknown: verified where there is no such user, so that the time does not tell. A wrong
        password of a user takes as many iterations.
    """

    hashes: Mapping[str, PasswordHash]
    acl: AclFile
    unknown: PasswordHash


@implementer(IAuthenticator)
class MosquittoAuthenticator:
    """
    Knows the users of a password file, by their passwords. An ACL file says what they may do.
    """

    credentialInterfaces = (IUsernamePassword,)

    def __init__(self, passwords: Path, acl: Path, context: AuthenticatorContext) -> None:
        self._passwords = passwords
        self._acl = acl
        self._context = context
        self._users = _Users({}, AclFile({}, ()), PasswordHash(0, b"", b""))

    @asDeferred
    async def start(self) -> None:
        """See L{IAuthenticator}."""
        apply = await self.reload()
        apply()

    @asDeferred
    async def reload(self) -> Callable[[], None]:
        """See L{IAuthenticator}."""
        run = self._context.runInThread
        hashes = await run(readPasswords, self._passwords)
        acl = await run(_read, self._acl, parseAcl)
        users = _Users(hashes, acl, unknownHash(hashes, self._context.entropy))

        def apply() -> None:
            self._users = users

        return apply

    def identify(self, name: str) -> Identity | None:
        """See L{IAuthenticator}."""
        hash = self._users.hashes.get(name)
        if hash is None:
            return None
        grants = self._users.acl.grants(name)
        return Identity(name=name, grants=grants, credentials=frozenset({_credential(hash)}))

    def names(self) -> Iterable[str]:
        """See L{IAuthenticator}."""
        return self._users.hashes

    def stop(self) -> None:
        """See L{IAuthenticator}."""

    @asDeferred
    async def requestAvatarId(self, credentials: Any) -> Any:
        """See C{ICredentialsChecker}."""
        # What is not UTF-8 is no name.
        name = credentials.username.decode("utf-8", "replace")
        hash, unknown = self._users.hashes.get(name), self._users.unknown
        verify = (hash or unknown).verify
        isGood = await self._context.runInThread(verify, credentials.password, unknown.iterations)
        # The files may have been read again meanwhile.
        identity = self.identify(name)
        if hash is None or identity is None or not isGood or self._users.hashes[name] != hash:
            raise UnauthorizedLogin()
        return evolve(identity, credential=_credential(hash))


def readPasswords(path: Path) -> Mapping[str, PasswordHash]:
    """
    Read a password file.

    @return: the hashes, by the names of the users.
    @raise InvalidDescription: it cannot be used. The text names it and the line.
    """
    return _read(path, parsePasswords)


def _credential(hash: PasswordHash) -> str:
    return hash.digest.hex()


def _read(path: Path, parse: Callable[[bytes], T]) -> T:
    """See L{readPasswords}."""
    try:
        return parse(readFile(path))
    except OSError as error:
        raise InvalidDescription(f"cannot read {path}: {error.strerror}") from error
    except LineError as error:
        raise InvalidDescription(f"{path}, {error}") from None
