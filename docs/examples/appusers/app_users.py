"""
An authenticator: the users of an application, in a table of SQLite.

The table C{users} has the columns C{name}, C{salt}, C{hash} (see L{hashPassword}) and C{grants}, a
grant or a role in each line.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from hashlib import scrypt
from hmac import compare_digest
from pathlib import Path
from typing import Any

from attrs import frozen
from twisted.cred.credentials import IUsernamePassword
from twisted.cred.error import UnauthorizedLogin
from twisted.internet.defer import Deferred
from zope.interface import implementer

from svcbroker.access import grantsOf
from svcbroker.interfaces import (
    AuthenticatorContext,
    IAuthenticator,
    IAuthenticatorFactory,
    Identity,
    InvalidDescription,
)

SALT_SIZE = 16


def hashPassword(password: bytes, salt: bytes) -> bytes:
    """The hash of a password. Takes some 50 ms."""
    return scrypt(password, salt=salt, n=2**14, r=8, p=1)


@frozen
class User:
    """A row of the table."""

    identity: Identity
    salt: bytes
    hash: bytes


def readUsers(path: Path) -> dict[str, User]:
    """
    Read the table. Blocks.

    @raise InvalidDescription: it cannot be read, or a grant is none.
    """
    try:
        # Not made where there is none, and not written to.
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            rows = database.execute("SELECT name, salt, hash, grants FROM users").fetchall()
    except sqlite3.Error as error:
        raise InvalidDescription(f"cannot read {path}: {error}") from error
    users = {}
    for name, salt, hash, grants in rows:
        try:
            identity = Identity(name=name, grants=grantsOf(grants.splitlines(), name=name))
        except ValueError as error:
            raise InvalidDescription(f"{path}: the grants of {name}: {error}") from error
        users[name] = User(identity, salt, hash)
    return users


@implementer(IAuthenticator)
class AppUsers:
    """
    Knows the users by their passwords.
    """

    credentialInterfaces = (IUsernamePassword,)

    def __init__(self, path: Path, context: AuthenticatorContext) -> None:
        self._path = path
        self._context = context
        self._users: dict[str, User] = {}
        # Unknown names are hashed with it, so that the time does not tell them.
        self._anySalt = context.entropy(SALT_SIZE)

    def start(self) -> Deferred[None]:
        """See L{IAuthenticator}."""
        return self.reload().addCallback(lambda apply: apply())

    def reload(self) -> Deferred[Callable[[], None]]:
        """See L{IAuthenticator}."""
        reading = self._context.runInThread(readUsers, self._path)
        return reading.addCallback(lambda users: lambda: self._use(users))

    def _use(self, users: dict[str, User]) -> None:
        self._users = users

    def identify(self, name: str) -> Identity | None:
        """See L{IAuthenticator}."""
        user = self._users.get(name)
        return None if user is None else user.identity

    def names(self) -> Iterable[str]:
        """See L{IAuthenticator}."""
        return self._users

    def stop(self) -> None:
        """See L{IAuthenticator}: nothing is open."""

    def requestAvatarId(self, credentials: Any) -> Deferred[Any]:
        """See L{IAuthenticator}: fires with an L{Identity}."""
        name = credentials.username.decode("utf-8", "replace")
        user = self._users.get(name)
        salt = self._anySalt if user is None else user.salt
        hashing = self._context.runInThread(hashPassword, credentials.password, salt)
        return hashing.addCallback(self._check, name, user)

    def _check(self, hash: bytes, name: str, user: User | None) -> Identity:
        if user is None or not compare_digest(hash, user.hash):
            raise UnauthorizedLogin()
        # The table may have been read again while the password was hashed.
        if self._users.get(name) != user:
            raise UnauthorizedLogin()
        return user.identity


@implementer(IAuthenticatorFactory)
class AppUsersFactory:
    """
    Makes the authenticator of a description: C{appusers:database=FILE}.
    """

    name = "appusers"
    summary = "The users of an application, in a table of SQLite."
    settings: Mapping[str, str] = {"database": "the database's file (required)"}

    def configure(
        self, settings: Mapping[str, str]
    ) -> Callable[[AuthenticatorContext], IAuthenticator]:
        """See L{IAuthenticatorFactory}."""
        if set(settings) != set(self.settings):
            raise InvalidDescription("database is needed, and there is no other setting")
        path = Path(settings["database"]).absolute()
        return lambda context: AppUsers(path, context)
