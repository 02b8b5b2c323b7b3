"""
C{svcbroker account}: the file of the accounts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date, datetime
from getpass import getpass
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, Final, TextIO

from attrs import frozen
from twisted.python import usage

from ..access import (
    Account,
    AccountText,
    CannotEdit,
    checkName,
    hashPassword,
    parseAccounts,
    readAccounts,
)
from ..interfaces import Action, InvalidDescription
from ._command import Command, CommandError, Console, Exit, didYouMean
from ._options import CommandOptions
from ._words import quoted, timeText

TOKEN_PREFIX: Final = "svct_"
"""With what tokens begin, so that scanners for secrets know them."""

_HEAD: Final = """\
# The accounts of a svcbroker, changed by: svcbroker account, or with an editor.
# Roles grant actions; built in are publisher, subscriber, operator and everything. Another one:
#
# [roles.sensors]
# grants = ["publish 1 sensors/%u/#", "open 1 sensors/%u/#"]
"""
_TOKEN_BYTES: Final = 32
_MAX_STDIN: Final = 64 * 1024


class _FileOptions(CommandOptions):
    """
    The options that all have: the file.
    """

    optParameters: list[list[Any]] = [["accounts", "a", None, "The file of the accounts."]]

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        if not self["accounts"]:
            raise usage.UsageError("which file? give it with --accounts FILE")
        # A link stays a link when the file is replaced.
        self["path"] = Path(os.path.realpath(self["accounts"]))


class AddOptions(_FileOptions):
    """
    The options of C{svcbroker account add}.
    """

    synopsis = "[options] NAME"
    optParameters = [
        *_FileOptions.optParameters,
        ["certificate", None, None, "The common name or the SHA-256 of the client's certificate."],
    ]
    optFlags = [["no-password", None, "It has no password: only tokens or a certificate."]]

    def __init__(self) -> None:
        super().__init__()
        self["roles"] = []

    def opt_role(self, name: str) -> None:
        """A role that it has; may be given more than once."""
        self["roles"].append(name)

    def parseArgs(self, name: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        try:
            self["name"] = checkName(name)
        except ValueError as error:
            raise usage.UsageError(str(error)) from None


class NameOptions(_FileOptions):
    """
    The options of an action on one account.
    """

    synopsis = "[options] NAME"

    def parseArgs(self, name: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        self["name"] = name


class TokenOptions(NameOptions):
    """
    The options of C{svcbroker account token}.
    """

    synopsis = "[options] NAME"
    optParameters = [
        *_FileOptions.optParameters,
        ["label", None, None, "What the token is called. [default: token-NUMBER]"],
        ["expires", None, None, "The last day, or the time, at which it is valid: 2027-01-31."],
    ]

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        super().postOptions()
        try:
            self["until"] = _moment(self["expires"])
        except ValueError:
            raise usage.UsageError(
                f"--expires: {self['expires']!r} is no date such as 2027-01-31, and no time such "
                "as 2027-01-31T12:00:00+01:00"
            ) from None


class RemoveOptions(NameOptions):
    """
    The options of C{svcbroker account remove}.
    """

    synopsis = "[options] NAME"
    optParameters = [
        *_FileOptions.optParameters,
        ["token", None, None, "Remove only the token with this label."],
    ]


class ListOptions(_FileOptions):
    """
    The options of C{svcbroker account list}.
    """

    synopsis = "[options]"


class MayOptions(_FileOptions):
    """
    The options of C{svcbroker account may}.
    """

    synopsis = "[options] NAME ACTION GROUP [TOPIC]"
    optParameters = [
        *_FileOptions.optParameters,
        ["client-id", None, None, "The MQTT client id, for grants with %c."],
    ]

    def parseArgs(  # type: ignore[override]
        self, name: str, action: str, group: str, topic: str = ""
    ) -> None:
        """See C{usage.Options}."""
        known = [each.value for each in Action]
        if action not in known:
            hint = didYouMean(action, known)
            raise usage.UsageError(f"{action!r} is none of: {', '.join(known)}{hint}")
        self["question"] = (name, Action(action), group, topic)


def _add(options: AddOptions, console: Console) -> int:
    path, name = options["path"], options["name"]
    if path.exists() and name in readAccounts(path).accounts:
        raise CommandError(f"{path}: there is an account {name} already; see passwd and token")
    values: dict[str, Any] = {"roles": options["roles"]}
    if options["certificate"]:
        values["certificate"] = options["certificate"]
    # Mistakes are told before the password is asked for.
    _changed(path, lambda text: text.addAccount(name, values))
    if not options["no-password"]:
        values = {"password": hashPassword(readPassword(name)), **values}
    _change(path, lambda text: text.addAccount(name, values))
    granted = (
        f"with the roles {', '.join(values['roles'])}" if values["roles"] else "without a role"
    )
    console.warn(f"{path}: added the account {name}, {granted}")
    return Exit.GOOD


def _passwd(options: NameOptions, console: Console) -> int:
    path, account = options["path"], _account(options)
    hash = hashPassword(readPassword(account.name))
    _change(path, lambda text: text.setPassword(account.name, hash))
    console.warn(f"{path}: the account {account.name} has another password")
    return Exit.GOOD


def _token(options: TokenOptions, console: Console) -> int:
    path, account = options["path"], _account(options)
    token = TOKEN_PREFIX + token_urlsafe(_TOKEN_BYTES)
    hash = sha256(token.encode("ascii")).hexdigest()
    labels = {each.label for each in account.tokens}
    label = options["label"] or next(
        name for number in range(1, len(labels) + 2) if (name := f"token-{number}") not in labels
    )
    if not label.isprintable():
        raise CommandError("--label: it has characters that cannot be printed")
    _change(path, lambda text: text.addToken(account.name, label, hash, options["until"]))
    console.say(token)
    console.warn(f"{path}: the account {account.name} has the token {label}; it is shown only now")
    return Exit.GOOD


def _list(options: ListOptions, console: Console) -> int:
    for account in readAccounts(options["path"]).accounts.values():
        console.say(f"{account.name}: {'; '.join(_describe(account))}")
    return Exit.GOOD


def _describe(account: Account) -> Iterator[str]:
    yield f"roles {', '.join(account.roles)}" if account.roles else "no role"
    if account.password:
        yield "a password"
    if account.certificate:
        yield f"certificate {quoted(account.certificate)}"
    for token in account.tokens:
        until = ""
        if token.expiresAt is not None:
            until = f" until {timeText(int(token.expiresAt * 1000))}"
        yield f"token {token.label}{until}"


def _remove(options: RemoveOptions, console: Console) -> int:
    path, account, label = options["path"], _account(options), options["token"]
    if not label:
        _change(path, lambda text: text.removeAccount(account.name))
        console.warn(f"{path}: removed the account {account.name}")
        return Exit.GOOD
    labels = [each.label for each in account.tokens]
    if label not in labels:
        hint = didYouMean(label, labels)
        raise CommandError(f"{path}: {account.name} has no token {quoted(label)}{hint}")
    _change(path, lambda text: text.removeToken(account.name, label))
    console.warn(f"{path}: removed the token {label} of {account.name}")
    return Exit.GOOD


def _may(options: MayOptions, console: Console) -> int:
    name, action, group, topic = options["question"]
    options["name"] = name
    account = _account(options)
    decision = account.identity.grants.decide(action, group, topic, options["client-id"] or "")
    role = f" (role {decision.role})" if decision.role else ""
    console.say(f"{'yes' if decision.isGranted else 'no'}: {decision.reason}{role}")
    return Exit.GOOD if decision.isGranted else Exit.BAD


def readPassword(
    name: str, stdin: TextIO | None = None, ask: Callable[[str], str] = getpass
) -> bytes:
    """
    A new password: asked for twice on a terminal, else read from standard input: one line, or the
    same line twice.

    @param name: the account's name, for the question.
    @raise CommandError: there is none, or two differ.
    """
    source = sys.stdin if stdin is None else stdin
    if source.isatty():
        lines = [ask(f"Password of {name}: "), ask("The same again: ")]
    else:
        lines = source.read(_MAX_STDIN).splitlines()
    if not lines or not lines[0] or len(lines) > 2:
        raise CommandError("a password is one line, or the same line twice")
    if lines[0] != lines[-1]:
        raise CommandError("the passwords are not the same: nothing was changed")
    return lines[0].encode("utf-8", "surrogateescape")


def _moment(text: str | None) -> date | datetime | None:
    if not text:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat(text)


def _account(options: Any) -> Account:
    accounts = readAccounts(options["path"]).accounts
    name = options["name"]
    if name not in accounts:
        hint = didYouMean(name, list(accounts))
        raise CommandError(f"{options['path']}: there is no account {quoted(name)}{hint}")
    return accounts[name]


def _changed(path: Path, change: Callable[[AccountText], str]) -> bytes:
    """
    The content of a file after a change; where there is none, of a new one.

    @raise InvalidDescription: what comes of it has a mistake, such as an unknown role.
    """
    old = _HEAD
    if path.exists():
        readAccounts(path)
        old = path.read_text("utf-8")
    new = change(AccountText(old)).encode("utf-8")
    parseAccounts(new, path)
    return new


def _change(path: Path, change: Callable[[AccountText], str]) -> None:
    """
    Replace a file as a whole, with the mode and the owner that it had; a new one is its owner's
    alone.
    """
    new = _changed(path, change)
    made = path.with_name(path.name + ".new")
    made.unlink(missing_ok=True)
    try:
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(new)
            file.flush()
            if path.exists():
                status = path.stat()
                os.fchmod(descriptor, status.st_mode & 0o777)
                with suppress(PermissionError):
                    os.fchown(descriptor, status.st_uid, status.st_gid)
            os.fsync(descriptor)
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)


@frozen(kw_only=True)
class AccountCommand(Command):
    """
    One command of C{svcbroker account}.

    @ivar Options: its options.
    """

    Options: type[CommandOptions]
    _run: Callable[[Any, Console], int]

    def load(self) -> Any:
        """See L{Command}."""
        return self

    def run(self, options: Any, console: Console) -> int:
        """
        Do it.

        @raise CommandError: the file cannot be used, or there is no such account.
        """
        try:
            return self._run(options, console)
        except InvalidDescription as error:
            raise CommandError(str(error)) from None
        except CannotEdit as error:
            raise CommandError(f"{options['path']}: {error}") from None


HELP: Final = (
    "The daemon is started with --accounts FILE. It reads the file again on SIGHUP and by: "
    "svcbroker reload."
)
COMMANDS: Final = tuple(
    AccountCommand(name=name, summary=summary, Options=options, run=run)
    for name, options, run, summary in (
        ("add", AddOptions, _add, "Add an account. Its password is asked for, or read."),
        ("passwd", NameOptions, _passwd, "Give an account another password."),
        ("token", TokenOptions, _token, "Give an account one more token, and show it once."),
        ("list", ListOptions, _list, "List the accounts, without any secret."),
        ("remove", RemoveOptions, _remove, "Remove an account, or one of its tokens."),
        ("may", MayOptions, _may, "Say whether an account may do something, and why."),
    )
)
