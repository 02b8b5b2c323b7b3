"""
The file of the accounts, and the authenticator that reads it: C{[accounts.NAME]}, C{[roles.NAME]}
and C{[limits.NAME]} in TOML; and changes of its text, line by line: comments and order stay.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from datetime import UTC, date, datetime, time
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import attrs
from attrs import evolve, field, frozen
from twisted.cred.credentials import IUsernamePassword
from twisted.cred.error import UnauthorizedLogin
from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from ..files import parseToml, readFile
from ..interfaces import (
    AuthenticatorContext,
    IAccountToken,
    IAuthenticator,
    IBearerToken,
    IClientCertificate,
    Identity,
    InvalidDescription,
    Quotas,
)
from ..model import AccountChange
from ..net.deferreds import asDeferred
from ._grants import BUILT_IN_ROLES, EVERYTHING, Grant, Grants
from ._logins import DEFAULT_COST, PasswordVerifier, checkHash, costOf
from ._principal import UNLIMITED

MAX_FILE_SIZE: Final = 4 * 1024 * 1024
MAX_NAME_LENGTH: Final = 128

_EVERYTHING: Final = "everything"
_NOT_IN_NAMES: Final = ":/+#"
_ACCOUNT_KEYS: Final = ("password", "tokens", "certificate", "roles", "limits")
_TOKEN_KEYS: Final = ("label", "sha256", "expires")
_LIMITS: Final = ("default", "anonymous")
_QUOTAS: Final = tuple(each.name for each in attrs.fields(Quotas))
_RATES: Final = ("publishes", "bytes")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


@frozen(kw_only=True)
class Token:
    """
    A token of an account.

    @ivar label: what the operator calls it.
    @ivar sha256: its SHA-256, in 64 lower-case hexadecimal digits.
    @ivar expiresAt: when it ends, in seconds since the epoch; C{None} for never.
    """

    label: str
    sha256: str = field(repr=False)
    expiresAt: float | None = None

    @property
    def credential(self) -> str:
        """Tells it from other credentials, and from itself with another end."""
        return f"{self.sha256} {self.expiresAt}"


@frozen(kw_only=True)
class Account:
    """
    An account.

    @ivar password: the hash of its password; empty where it has none.
    @ivar certificate: the common name of its certificate, or the SHA-256 in 64 lower-case
        hexadecimal digits; empty where it has none.
    """

    name: str
    identity: Identity
    password: str = field(default="", repr=False)
    tokens: tuple[Token, ...] = ()
    certificate: str = ""
    roles: tuple[str, ...] = ()


@frozen(kw_only=True)
class AccountTable:
    """
    The contents of a file of accounts.

    @ivar accounts: by their names.
    @ivar tokens: by their hashes: the account's name, and the token.
    @ivar commonNames: names of accounts by common names of certificates.
    @ivar fingerprints: names of accounts by hashes of certificates.
    @ivar defaultQuotas: of accounts that have none of their own.
    @ivar anonymousQuotas: of all clients without credentials together.
    @ivar costs: what verifying the passwords costs, each cost once.
    """

    accounts: Mapping[str, Account]
    tokens: Mapping[str, tuple[str, Token]]
    commonNames: Mapping[str, str]
    fingerprints: Mapping[str, str]
    defaultQuotas: Quotas = UNLIMITED
    anonymousQuotas: Quotas = UNLIMITED
    costs: tuple[str, ...] = (DEFAULT_COST,)


def readAccounts(path: Path) -> AccountTable:
    """
    Read a file of accounts.

    @raise InvalidDescription: it cannot be used. The text is one line that names the file, the
        table and the key, and what is allowed.
    """
    try:
        raw = readFile(path, MAX_FILE_SIZE)
    except OSError as error:
        raise InvalidDescription(f"cannot read {path}: {error.strerror}") from error
    return parseAccounts(raw, path)


def parseAccounts(raw: bytes, path: Path) -> AccountTable:
    """
    Read what a file of accounts holds.

    @raise InvalidDescription: see L{readAccounts}.
    """
    if len(raw) > MAX_FILE_SIZE:
        raise InvalidDescription(f"{path} is larger than {MAX_FILE_SIZE} bytes")
    try:
        tables = parseToml(raw)
    except ValueError as error:
        raise InvalidDescription(f"{path} {error}") from error
    try:
        return _Reader(tables).read()
    except _Mistake as error:
        raise InvalidDescription(f"{path}: {error}") from None


def grantsOf(
    roles: Iterable[str], declared: Mapping[str, tuple[str, ...]] | None = None, name: str = ""
) -> Grants:
    """
    The grants of several roles together.

    @param roles: the names of roles; also grants themselves.
    @param declared: the roles beside the built-in ones.
    @param name: the account's name, for C{%u}.
    @raise ValueError: one of them is neither.
    """
    known = {**BUILT_IN_ROLES, **(declared or {})}
    names = tuple(roles)
    grants = Grants(
        tuple(
            Grant.parse(line, each if each in known else "")
            for each in names
            for line in known.get(each, (each,))
        ),
        name,
    )
    if _EVERYTHING in names and not any(grant.isDenied for grant in grants.grants):
        return EVERYTHING
    return grants


def checkName(name: str) -> str:
    """
    Check the name of an account.

    @raise ValueError: no account can have it.
    """
    if (
        not 0 < len(name) <= MAX_NAME_LENGTH
        or not name.isprintable()
        or any(each.isspace() or each in _NOT_IN_NAMES for each in name)
        or name.startswith("$")
    ):
        raise ValueError(
            f"a name is 1 to {MAX_NAME_LENGTH} characters without spaces and : / + #, and does not "
            f"begin with $, not {name!r}"
        )
    return name


class _Mistake(Exception):
    """A mistake in the file, at a table and a key."""


class _Reader:
    """Reads the tables of one file."""

    def __init__(self, tables: Mapping[str, Any]) -> None:
        self._tables = tables
        self._roles: dict[str, tuple[str, ...]] = {}
        self._tokens: dict[str, tuple[str, Token]] = {}
        # Apart, so that no common name can be taken for a hash.
        self._commonNames: dict[str, str] = {}
        self._fingerprints: dict[str, str] = {}

    def read(self) -> AccountTable:
        _known(self._tables, ("accounts", "roles", "limits"), "")
        for name in _table(self._tables, "roles", ""):
            self._roles[name] = self._readRole(name)
        accounts = {}
        for name in _table(self._tables, "accounts", ""):
            accounts[name] = self._readAccount(name)
        limits = _table(self._tables, "limits", "")
        _known(limits, _LIMITS, "[limits]")
        default, anonymous = (_quotas(limits, each, "[limits]") for each in _LIMITS)
        costs = {costOf(each.password): None for each in accounts.values() if each.password}
        return AccountTable(
            accounts=accounts,
            tokens=self._tokens,
            commonNames=self._commonNames,
            fingerprints=self._fingerprints,
            defaultQuotas=default or UNLIMITED,
            anonymousQuotas=anonymous or UNLIMITED,
            costs=tuple(costs) or (DEFAULT_COST,),
        )

    def _readRole(self, name: str) -> tuple[str, ...]:
        where = f"[roles.{name}]"
        if name in BUILT_IN_ROLES:
            raise _Mistake(f"{where} is a built-in role; give yours another name")
        table = _table(self._tables["roles"], name, "[roles]")
        _known(table, ("grants",), where)
        lines = _strings(table, "grants", where)
        try:
            Grants.parse(lines)
        except ValueError as error:
            raise _Mistake(f"{where} grants: {error}") from None
        return lines

    def _readAccount(self, name: str) -> Account:
        where = f"[accounts.{name}]"
        try:
            checkName(name)
        except ValueError as error:
            raise _Mistake(f"[accounts]: {error}") from None
        table = _table(self._tables["accounts"], name, "[accounts]")
        _known(table, _ACCOUNT_KEYS, where)
        password = _string(table, "password", where)
        if password:
            try:
                checkHash(password)
            except ValueError as error:
                raise _Mistake(f"{where} password: {error}") from None
        roles = _strings(table, "roles", where)
        for role in roles:
            known = [*BUILT_IN_ROLES, *self._roles]
            if role not in known:
                raise _Mistake(f"{where} roles: there is no role {role!r}, but {', '.join(known)}")
        tokens = self._readTokens(table, name, where)
        certificate = self._readCertificate(table, name, where)
        return Account(
            name=name,
            identity=Identity(
                name=name,
                grants=grantsOf(roles, self._roles, name),
                quotas=_quotas(table, "limits", where),
                credentials=frozenset(
                    {password, certificate, *(each.credential for each in tokens)} - {""}
                ),
            ),
            password=password,
            tokens=tokens,
            certificate=certificate,
            roles=roles,
        )

    def _readTokens(self, table: Mapping[str, Any], name: str, where: str) -> tuple[Token, ...]:
        found: list[Token] = []
        values = table.get("tokens", [])
        if not isinstance(values, list) or not all(isinstance(each, dict) for each in values):
            raise _Mistake(f'{where} tokens: must be a list of {{ label = "...", sha256 = "..." }}')
        for value in values:
            at = f"{where} tokens"
            _known(value, _TOKEN_KEYS, at)
            label, sha256 = (_string(value, key, at) for key in ("label", "sha256"))
            if not label or not label.isprintable():
                raise _Mistake(f"{at}: each needs a label, text that can be printed")
            at = f"{where} tokens, {label}"
            if _FINGERPRINT.fullmatch(sha256) is None:
                raise _Mistake(f"{at}: sha256 must be 64 lower-case hexadecimal digits")
            if label in {each.label for each in found}:
                raise _Mistake(f"{at}: two tokens have this label")
            if sha256 in self._tokens:
                other = self._tokens[sha256][0]
                raise _Mistake(f"{at}: sha256: [accounts.{other}] has the same token")
            token = Token(label=label, sha256=sha256, expiresAt=_moment(value.get("expires"), at))
            self._tokens[sha256] = (name, token)
            found.append(token)
        return tuple(found)

    def _readCertificate(self, table: Mapping[str, Any], name: str, where: str) -> str:
        text = _string(table, "certificate", where)
        if not text:
            return ""
        fingerprint = text.replace(":", "").lower()
        if _FINGERPRINT.fullmatch(fingerprint):
            text, known = fingerprint, self._fingerprints
        else:
            known = self._commonNames
        other = known.setdefault(text, name)
        if other != name:
            raise _Mistake(f"{where} certificate: [accounts.{other}] has the same certificate")
        return text


def _known(table: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    """Refuse keys that mean nothing."""
    known = tuple(keys)
    for key in table:
        if key not in known:
            nearest = get_close_matches(key, known, 1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            raise _Mistake(
                f"{where} {key}: there is no such key, but {', '.join(known)}{hint}".lstrip()
            )


def _table(table: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise _Mistake(f"{where} {key}: must be a table".lstrip())
    return value


def _string(table: Mapping[str, Any], key: str, where: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise _Mistake(f"{where} {key}: must be text")
    return value


def _strings(table: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _Mistake(f"{where} {key}: must be a list of texts")
    return tuple(value)


def _quotas(table: Mapping[str, Any], key: str, where: str) -> Quotas | None:
    """Limits; C{None} where there are none."""
    if key not in table:
        return None
    limits = _table(table, key, where)
    at = f"{where} {key}"
    _known(limits, _QUOTAS, at)
    for name, value in limits.items():
        isNumber = isinstance(value, int) or (name in _RATES and isinstance(value, float))
        # Infinity and NaN are TOML, too.
        if isinstance(value, bool) or not isNumber or not 0 < value < float("inf"):
            what = "number" if name in _RATES else "whole number"
            raise _Mistake(f"{at}, {name}: must be a {what} above 0")
    return Quotas(**limits)


def _moment(value: object, at: str) -> float | None:
    """
    The time at which a token expires. A day is over at its end; times without an offset are UTC.
    """
    if value is None:
        return None
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    elif isinstance(value, date):
        moment = datetime.combine(value, time.max, UTC)
    else:
        raise _Mistake(f"{at}: expires must be a date or a date with a time, such as 2027-01-31")
    try:
        return moment.timestamp()
    except (OverflowError, ValueError):
        raise _Mistake(f"{at}: expires is not a date that a calendar has") from None


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

    @asDeferred
    async def difference(self) -> Sequence[AccountChange]:
        """
        Compare the accounts with those that the file has now.

        @return: fires with those that a reload would change, in the order of their names.
        @raise InvalidDescription: the file is not valid.
        """
        table = await self._context.runInThread(readAccounts, self._path)
        return [*_changesOf(self._table, table)]

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


def _changesOf(before: AccountTable, after: AccountTable) -> Iterator[AccountChange]:
    """The accounts that two tables have otherwise."""
    limits = ("defaultQuotas", "anonymousQuotas")
    if any(getattr(before, name) != getattr(after, name) for name in limits):
        yield AccountChange(name="", kind="changed", parts=("limits",))
    for name in sorted({*before.accounts, *after.accounts}):
        old, new = before.accounts.get(name), after.accounts.get(name)
        if old is None or new is None:
            yield AccountChange(name=name, kind="added" if old is None else "removed")
        elif parts := [part for part, value in _PARTS.items() if value(old) != value(new)]:
            yield AccountChange(name=name, kind="changed", parts=parts)


_PARTS: Final[Mapping[str, Callable[[Account], object]]] = {
    "password": lambda account: account.password,
    "tokens": lambda account: account.tokens,
    "certificate": lambda account: account.certificate,
    "roles": lambda account: account.roles,
    "grants": lambda account: account.identity.grants,
    "limits": lambda account: account.identity.quotas,
}
"""The parts of an account of which operators are told that they change."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_PASSWORD_LINE = re.compile(r"\s*password\s*=")
_ACCOUNTS: Final = "accounts"


class CannotEdit(Exception):
    """The text is written in a way that cannot be changed line by line. The message says so."""


@frozen
class _Section:
    """
    A header and the lines below it, down to the comments in front of the next header.

    @ivar path: the keys that the header names.
    @ivar start: the number of the header's line.
    @ivar end: the number of the line after the last one.
    """

    path: tuple[str, ...]
    start: int
    end: int


class AccountText:
    """
    The text of a file of accounts. Each change is compared with what it was to change: a text that
    would come to mean anything else is not written.
    """

    def __init__(self, text: str) -> None:
        """
        @param text: TOML.
        """
        self._tables = tomllib.loads(text)
        self._lines = text.splitlines()

    def addAccount(self, name: str, values: Mapping[str, Any]) -> str:
        """
        The text with one more account.

        @param values: its keys: text, and lists of text.
        """
        lines = [f"[{_dotted(_ACCOUNTS, name)}]"]
        lines += [f"{key} = {_value(value)}" for key, value in values.items()]
        tables = deepcopy(self._tables)
        tables.setdefault(_ACCOUNTS, {})[name] = dict(values)
        return self._checked([*self._lines, *_parted(self._lines), *lines], tables, name)

    def setPassword(self, name: str, hash: str) -> str:
        """The text with another password of an account."""
        header = self._header(name)
        section = self._lines[header.start + 1 : header.end]
        kept = [line for line in section if not _PASSWORD_LINE.match(line)]
        place = next((at for at, line in enumerate(section) if _PASSWORD_LINE.match(line)), 0)
        kept.insert(place, f"password = {_value(hash)}")
        tables = deepcopy(self._tables)
        tables[_ACCOUNTS][name]["password"] = hash
        return self._checked(self._replaced([header], kept), tables, name)

    def addToken(self, name: str, label: str, sha256: str, expires: Any) -> str:
        """
        The text with one more token of an account.

        @param expires: a date or a date with a time; C{None} for never.
        """
        token = {"label": label, "sha256": sha256}
        if expires is not None:
            token["expires"] = expires
        lines = ["", f"[[{_dotted(_ACCOUNTS, name, 'tokens')}]]"]
        lines += [f"{key} = {_value(value)}" for key, value in token.items()]
        self._header(name)
        end = max(section.end for section in self._sections(_ACCOUNTS, name))
        tables = deepcopy(self._tables)
        tables[_ACCOUNTS][name].setdefault("tokens", []).append(token)
        return self._checked([*self._lines[:end], *lines, *self._lines[end:]], tables, name)

    def removeToken(self, name: str, label: str) -> str:
        """The text without one token of an account, which has it."""
        tables = deepcopy(self._tables)
        tokens = tables[_ACCOUNTS][name]["tokens"]
        place = [each.get("label") for each in tokens].index(label)
        del tokens[place]
        if not tokens:
            del tables[_ACCOUNTS][name]["tokens"]
        sections = list(self._sections(_ACCOUNTS, name, "tokens"))
        if len(sections) <= place:
            raise _cannot(name)
        return self._checked(self._replaced([sections[place]], None), tables, name)

    def removeAccount(self, name: str) -> str:
        """The text without an account, which it has."""
        tables = deepcopy(self._tables)
        del tables[_ACCOUNTS][name]
        sections = list(self._sections(_ACCOUNTS, name))
        return self._checked(self._replaced(sections, None), tables, name)

    def _header(self, name: str) -> _Section:
        for section in self._sections(_ACCOUNTS, name):
            if section.path == (_ACCOUNTS, name):
                return section
        raise _cannot(name)

    def _sections(self, *prefix: str) -> Iterator[_Section]:
        headers = [
            (number, path)
            for number, line in enumerate(self._lines)
            if (path := _headerPath(line)) is not None
        ]
        ends = [*(number for number, _ in headers[1:]), len(self._lines)]
        for (start, path), end in zip(headers, ends, strict=False):
            if path[: len(prefix)] != prefix:
                continue
            while end > start + 1 and _isBlank(self._lines[end - 1]):
                end -= 1
            yield _Section(path, start, end)

    def _replaced(self, sections: Sequence[_Section], body: Sequence[str] | None) -> list[str]:
        """The lines with other bodies of sections; C{None} removes them with their headers."""
        lines = list(self._lines)
        for section in reversed(sections):
            if body is None:
                del lines[section.start : section.end]
                # Of the blank lines in front and behind, one is enough.
                while 0 < section.start < len(lines) and not (
                    lines[section.start - 1].strip() or lines[section.start].strip()
                ):
                    del lines[section.start]
            else:
                lines[section.start + 1 : section.end] = body
        return lines

    def _checked(self, lines: Sequence[str], expected: Mapping[str, Any], name: str) -> str:
        text = "\n".join(lines).strip("\n") + "\n"
        try:
            found = tomllib.loads(text)
        except ValueError:
            raise _cannot(name) from None
        if _withoutEmpty(found) != _withoutEmpty(expected):
            raise _cannot(name)
        return text


def _cannot(name: str) -> CannotEdit:
    return CannotEdit(
        f"the account {name} is not written as [{_dotted(_ACCOUNTS, name)}] with one line for each "
        "key: change it with an editor"
    )


def _withoutEmpty(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    # The last account goes with its header, and the table of all accounts with it.
    return {key: value for key, value in tables.items() if value != {}}


def _isBlank(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _parted(lines: Sequence[str]) -> list[str]:
    return [""] if lines and lines[-1].strip() else []


def _headerPath(line: str) -> tuple[str, ...] | None:
    """The keys that a header names; C{None} where a line is none."""
    if not line.lstrip().startswith("["):
        return None
    try:
        table: Any = tomllib.loads(line)
    except ValueError:
        return None
    path = []
    while table:
        if isinstance(table, list):
            table = table[0]
        else:
            [(key, table)] = table.items()
            path.append(key)
    return tuple(path)


def _dotted(*keys: str) -> str:
    return ".".join(key if _BARE_KEY.fullmatch(key) else _value(key) for key in keys)


def _value(value: Any) -> str:
    """A value in TOML. Its strings have no control characters, and are JSON strings, too."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    text: str = value.isoformat()
    return text
