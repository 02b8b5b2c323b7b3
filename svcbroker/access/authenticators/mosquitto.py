"""
The authenticator of mosquitto's password and ACL files.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import pbkdf2_hmac, sha512
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final, TypeVar

from attrs import evolve, field, frozen
from twisted.cred.credentials import IUsernamePassword
from twisted.cred.error import UnauthorizedLogin
from zope.interface import implementer

from ...files import readFile
from ...interfaces import (
    Action,
    AuthenticatorContext,
    Decision,
    GrantLine,
    IAuthenticator,
    Identity,
    IGroupGrants,
    InvalidDescription,
)
from ...model import filterCovers, filterMatches, filtersOverlap
from ...net.deferreds import asDeferred
from ...net.descriptions import Readers, absolutePath, readValues
from .. import fitsPlaceholder

BLANKS: Final = " \t\n\v\f\r"
"""The characters that C{isspace} of C takes for blank, fewer than Python does."""


_USER: Final = "%u"
_CLIENT: Final = "%c"
_PLACEHOLDER = re.compile("%[uc]")
_WILDCARDS: Final = "+#"

_WRITE: Final = frozenset({Action.PUBLISH, Action.OPEN})
_READ: Final = frozenset({Action.SUBSCRIBE})
_ACCESS: Final[Mapping[str, frozenset[Action]]] = {
    "read": _READ,
    "write": _WRITE,
    "readwrite": _READ | _WRITE,
    "deny": frozenset(),
}

_NOTHING: Final = Decision(False, "no line of the ACL file allows it")
_UNUSABLE: Final = Decision(
    False,
    "no line allows it, and those whose %u or %c stands for a name that begins with $ or has + or "
    "# or / or a control character do not count",
)

_SALTED: Final = "6"
_PBKDF2: Final = "7"
_NUMBER = re.compile("[0-9]{1,9}")
_MAX_ITERATIONS: Final = 10_000_000

USUAL_ITERATIONS: Final = 210_000
"""The advice of OWASP for PBKDF2 with HMAC-SHA-512: some 0.2 seconds."""

_DIGEST_SIZE: Final = sha512().digest_size

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


class LineError(ValueError):
    """
    A line that cannot be used. The text names it by its number.
    """

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"line {number}: {text}")


def readLines(raw: bytes) -> Iterator[tuple[int, str]]:
    """
    The lines of a file without comments, with their numbers.

    @raise LineError: one is not UTF-8.
    """
    for number, line in enumerate(raw.split(b"\n"), 1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            raise LineError(number, "is not UTF-8") from None
        if not text.startswith("#"):
            yield number, text


@frozen
class AclLine:
    """
    A line C{topic} or C{pattern}.

    @ivar text: the line, as it was written.
    @ivar actions: what it grants; nothing where it denies.
    @ivar filter: which topics: an MQTT filter, in which C{%u} and C{%c} stand for the user's name
        and the MQTT client id where the line is a pattern.
    """

    text: str
    actions: frozenset[Action]
    filter: str

    @property
    def isDenied(self) -> bool:
        """Whether it denies."""
        return not self.actions


@implementer(IGroupGrants)
@frozen
class AclGrants:
    """
    The grants of an ACL file to a user, as in mosquitto 2.0. C{write} is to publish and to open
    topics, C{read} is to subscribe and to read; nothing else is ever granted.

    The first line that matches and is about the action decides: the user's own lines are tried
    before the patterns, and of each those that deny come first.

    mosquitto lets clients choose what a pattern means by their id: C{$svc}, or C{a/b}. A pattern
    with a name that does not fit, see L{fitsPlaceholder<svcbroker.access.fitsPlaceholder>}, grants
    nothing here; one that denies does.

    @ivar lines: the user's own lines.
    @ivar patterns: the patterns of all users.
    @ivar name: the user's name; empty for clients without one.
    """

    lines: tuple[AclLine, ...]
    patterns: tuple[AclLine, ...]
    name: str = ""
    isEverything: bool = field(default=False, init=False)
    dependsOnClient: bool = field(init=False)

    @dependsOnClient.default
    def _dependsOnClient(self) -> bool:
        # Also where none has %c: see _filled.
        return bool(self.patterns)

    def decide(self, action: Action, group: str, topic: str, clientId: str) -> Decision:
        """See L{IGrants}."""
        for line, filter in self._filled(clientId):
            if (line.isDenied or action in line.actions) and filterMatches(filter, topic):
                return Decision(not line.isDenied, line.text)
        names = (self.name, clientId)
        isUnusable = any(name and not fitsPlaceholder(name) for name in names)
        return _UNUSABLE if self.patterns and isUnusable else _NOTHING

    def mayAny(self, action: Action, group: str | None, filter: str, clientId: str) -> bool:
        """See L{IGrants}."""
        for line, lineFilter in self._filled(clientId):
            if line.isDenied:
                if filterCovers(lineFilter, filter):
                    return False
            elif action in line.actions and filtersOverlap(lineFilter, filter):
                return True
        return False

    def seesGroup(self, group: str, clientId: str) -> bool:
        """See L{IGroupGrants}: all groups have the same lines."""
        denied: list[str] = []
        for line, filter in self._filled(clientId):
            if line.isDenied:
                denied.append(filter)
            elif not any(filterCovers(each, filter) for each in denied):
                return True
        return False

    def describe(self, group: str | None) -> Sequence[GrantLine]:
        """See L{IGrants}: all groups have the same lines."""
        return [GrantLine(line.text) for line in (*self.lines, *self.patterns)]

    def _filled(self, clientId: str) -> Iterator[tuple[AclLine, str]]:
        """The lines that count, in the order in which they are tried, with their filters."""
        for line in self.lines:
            yield line, line.filter
        names = {_USER: self.name, _CLIENT: clientId}
        if any(sign in name for name in names.values() for sign in _WILDCARDS):
            # Not even those without a placeholder, as in mosquitto.
            return
        unfit = {sign for sign, name in names.items() if not fitsPlaceholder(name)}
        for line in self.patterns:
            wanted = _PLACEHOLDER.findall(line.filter)
            isUsable = line.isDenied or unfit.isdisjoint(wanted)
            if isUsable and all(names[each] for each in wanted):
                yield line, _PLACEHOLDER.sub(lambda found: names[found[0]], line.filter)


@frozen
class AclFile:
    """
    The contents of an ACL file.

    @ivar users: the lines of each user; by an empty name, those for clients without one.
    @ivar patterns: the patterns of all users.
    """

    users: Mapping[str, tuple[AclLine, ...]]
    patterns: tuple[AclLine, ...]

    def grants(self, name: str) -> AclGrants:
        """The grants of a user."""
        return AclGrants(self.users.get(name, ()), self.patterns, name)


def parseAcl(raw: bytes) -> AclFile:
    """
    Read an ACL file.

    @raise LineError: mosquitto refuses a line.
    """
    users: dict[str, list[AclLine]] = {}
    patterns: list[AclLine] = []
    user = ""
    for number, line in readLines(raw):
        text = line.rstrip(BLANKS)
        word, _, rest = text.lstrip(" ").partition(" ")
        if word == "user":
            user = rest.strip(BLANKS)
            if not user:
                raise LineError(number, "there is no name after user")
        elif word in ("topic", "pattern"):
            kept = patterns if word == "pattern" else users.setdefault(user, [])
            kept.append(_parseLine(number, text, rest.lstrip(" ")))
        elif word:
            raise LineError(number, f"begins with {word!r}, and not with user, topic or pattern")
    return AclFile(
        {name: _deniedFirst(lines) for name, lines in users.items()}, _deniedFirst(patterns)
    )


def _parseLine(number: int, text: str, rest: str) -> AclLine:
    access, blank, filter = rest.partition(" ")
    if blank:
        filter = filter.strip(BLANKS)
        if access not in _ACCESS:
            known = ", ".join(_ACCESS)
            raise LineError(number, f"{access!r} is no access; there are {known}")
    else:
        access, filter = "readwrite", access
    if not filter:
        raise LineError(number, "there is no topic")
    levels = filter.split("/")
    for level in levels:
        if len(level) > 1 and any(sign in level for sign in _WILDCARDS):
            raise LineError(number, f"{filter!r}: + and # stand for whole levels only")
    if "#" in levels[:-1]:
        raise LineError(number, f"{filter!r}: # stands for the last level only")
    return AclLine(text, _ACCESS[access], filter)


def _deniedFirst(lines: list[AclLine]) -> tuple[AclLine, ...]:
    return tuple(sorted(lines, key=lambda line: not line.isDenied))


@frozen
class PasswordHash:
    """
    The hash of a password: C{$6$SALT$HASH} is SHA-512 of the password and the salt, and
    C{$7$ITERATIONS$SALT$HASH} is PBKDF2 with HMAC-SHA-512.

    @ivar iterations: 0 for C{$6$}.
    """

    iterations: int
    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> PasswordHash:
        """
        Read a hash.

        @raise ValueError: it is none. The text does not show it.
        """
        empty, _, rest = text.partition("$")
        kind, *parts = rest.split("$")
        if empty or kind not in (_SALTED, _PBKDF2):
            raise ValueError(
                "the password is not hashed as $6$ or $7$; mosquitto_passwd -U hashes those of "
                "a file"
            )
        iterations = 0
        if kind == _PBKDF2:
            count = parts.pop(0) if parts else ""
            iterations = int(count) if _NUMBER.fullmatch(count) else 0
            if not 0 < iterations <= _MAX_ITERATIONS:
                raise ValueError(f"a $7$ hash has 1 to {_MAX_ITERATIONS} iterations")
        if len(parts) != 2:
            raise ValueError(f"a ${kind}$ hash has a salt and a hash after it")
        try:
            salt, digest = (b64decode(part, validate=True) for part in parts)
        except ValueError:
            raise ValueError("the salt or the hash is not base64") from None
        if len(digest) != _DIGEST_SIZE:
            raise ValueError(f"the hash does not have {_DIGEST_SIZE} bytes")
        return cls(iterations, salt, digest)

    def verify(self, password: bytes, iterations: int = 0) -> bool:
        """
        Whether it is the hash of a password. Blocks; may be called in any thread.

        @param iterations: those that a wrong password takes at least, so that the time does not
            tell which hash it was compared with.
        """
        if self.iterations:
            digest = pbkdf2_hmac("sha512", password, self.salt, self.iterations)
        else:
            digest = sha512(password + self.salt).digest()
        isGood = compare_digest(digest, self.digest)
        if not isGood and iterations > self.iterations:
            pbkdf2_hmac("sha512", password, self.salt, iterations - self.iterations)
        return isGood


def parsePasswords(raw: bytes) -> Mapping[str, PasswordHash]:
    """
    Read a password file: C{NAME:HASH} in each line. As with mosquitto, lines without a colon mean
    nothing.

    @return: the hashes, by the names of the users.
    @raise LineError: a line cannot be used.
    """
    hashes: dict[str, PasswordHash] = {}
    for number, line in readLines(raw):
        name, colon, rest = line.partition(":")
        if not colon:
            continue
        name = name.strip(BLANKS)
        if not name:
            raise LineError(number, "there is no name before the colon")
        if name in hashes:
            raise LineError(number, f"there is a password of {name!r} already")
        try:
            hashes[name] = PasswordHash.parse(rest.partition(":")[0].strip(BLANKS))
        except ValueError as error:
            raise LineError(number, str(error)) from None
    return hashes


def unknownHash(
    hashes: Mapping[str, PasswordHash], entropy: Callable[[int], bytes]
) -> PasswordHash:
    """
    A hash that no password has, and that takes as long to verify as the dearest of others.

    @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
    """
    iterations = max((each.iterations for each in hashes.values()), default=0)
    return PasswordHash(iterations, bytes(12), entropy(_DIGEST_SIZE))


@frozen
class _Users:
    """
    The contents of the two files.

    @ivar unknown: verified where there is no such user, so that the time does not tell. A wrong
        password of a user takes as many iterations.
    """

    hashes: Mapping[str, PasswordHash]
    acl: AclFile
    unknown: PasswordHash


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
