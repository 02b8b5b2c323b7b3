"""
The authenticator of the file of accounts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.cred.credentials import IUsernamePassword
from twisted.cred.error import UnauthorizedLogin
from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from ..interfaces import (
    AuthenticatorContext,
    IAccountToken,
    IAuthenticator,
    IBearerToken,
    IClientCertificate,
    Identity,
    Quotas,
)
from ..net.deferreds import asDeferred
from ._accountfile import Account, AccountTable, readAccounts
from ._passwords import PasswordVerifier


@implementer(IAuthenticator)
class Accounts:
    """
    Knows the accounts of a file, by their passwords, tokens and certificates.
    """

    credentialInterfaces = (IUsernamePassword, IAccountToken, IBearerToken, IClientCertificate)

    def __init__(self, path: Path, table: AccountTable, context: AuthenticatorContext) -> None:
        """
        @param path: the file.
        @param table: what it held when the daemon was started.
        """
        self._path = path
        self._context = context
        self._use(table)

    def _use(self, table: AccountTable) -> None:
        self._table = table
        self._verifier = PasswordVerifier(table.costs, self._context.entropy)

    def start(self) -> Deferred[None]:
        """See L{IAuthenticator}."""
        return succeed(None)

    def stop(self) -> None:
        """See L{IAuthenticator}."""

    @asDeferred
    async def reload(self) -> Callable[[], None]:
        """See L{IAuthenticator}."""
        table = await self._context.runInThread(readAccounts, self._path)
        return lambda: self._use(table)

    def identify(self, name: str) -> Identity | None:
        """See L{IAuthenticator}."""
        account = self._table.accounts.get(name)
        return None if account is None else account.identity

    def names(self) -> Iterable[str]:
        """See L{IAuthenticator}."""
        return self._table.accounts

    def quotas(self, name: str) -> Quotas:
        """The quotas of an account that has none of its own; by an empty name, of all others."""
        return self._table.defaultQuotas if name else self._table.anonymousQuotas

    @asDeferred
    async def requestAvatarId(self, credentials: Any) -> Any:
        """See C{ICredentialsChecker}."""
        if IUsernamePassword.providedBy(credentials):
            return await self._checkPassword(credentials)
        if IClientCertificate.providedBy(credentials):
            found = self._findCertificate(credentials)
            return evolve(found.identity, credential=found.certificate)
        return self._checkToken(credentials)

    async def _checkPassword(self, credentials: Any) -> Identity:
        # What is not UTF-8 is no name.
        name = credentials.username.decode("utf-8", "replace")
        account = self._table.accounts.get(name)
        hash = "" if account is None else account.password
        verify = self._verifier.verify
        isGood = await self._context.runInThread(verify, hash, credentials.password)
        # The file may have been read again meanwhile.
        if not isGood or account is None or self._table.accounts.get(name) != account:
            raise UnauthorizedLogin()
        return evolve(account.identity, credential=account.password)

    def _findCertificate(self, credentials: Any) -> Account:
        table = self._table
        name = table.fingerprints.get(credentials.fingerprint)
        if name is None:
            name = table.commonNames.get(credentials.commonName)
        if name is None:
            raise UnauthorizedLogin()
        return table.accounts[name]

    def _checkToken(self, credentials: Any) -> Identity:
        # The time that finding a hash takes tells nothing that helps to find a token.
        hash = sha256(credentials.token.encode("utf-8", "surrogatepass")).hexdigest()
        name, token = self._table.tokens.get(hash, ("", None))
        if token is None or (
            IAccountToken.providedBy(credentials) and credentials.name not in ("", name)
        ):
            raise UnauthorizedLogin()
        if token.expiresAt is not None and token.expiresAt <= self._context.now():
            raise UnauthorizedLogin()
        identity = self._table.accounts[name].identity
        return evolve(identity, expiresAt=token.expiresAt, credential=token.credential)
