"""
C{svcbroker admin account}: the file of the accounts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from datetime import date, datetime
from functools import wraps
from getpass import getpass
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, Final, TextIO

import click

from ..access import (
    Account,
    AccountText,
    CannotEdit,
    checkName,
    hashPassword,
    parseAccounts,
    readAccounts,
)
from ..files import replaceFile
from ..interfaces import Action, InvalidDescription
from .arguments import ParsedType, jsonOption, makeCommand, options
from .commandline import Command
from .terminal import (
    CommandError,
    Console,
    Exit,
    didYouMean,
    quoted,
    showRecord,
    showTable,
    timeText,
)

TOKEN_PREFIX: Final = "svct_"
"""With what tokens begin, so that scanners for secrets know them."""

_HEAD: Final = """\
# The accounts of a svcbroker, changed by: svcbroker admin account, or with an editor.
# An account may do what its roles grant. The roles that need not be declared:
#
#   publisher   publishes to all topics, and opens them
#   subscriber  subscribes to all topics, and reads them
#   metrics     reads the metrics
#   operator    operates the broker (erases, reloads, looks at webhooks), and reads the audit trail
#   everything  all of this, and the topics of the broker itself ($svc/)
#
# Another one, whose accounts publish below sensors/ and their own name, in group 1:
#
# [roles.sensors]
# grants = ["publish 1 sensors/%u/#", "open 1 sensors/%u/#"]
"""
_TOKEN_BYTES: Final = 32
_MAX_STDIN: Final = 64 * 1024


def _path(text: str) -> Path:
    # A link stays a link when the file is replaced.
    return Path(os.path.realpath(text))


def _moment(text: str) -> date | datetime:
    try:
        try:
            return date.fromisoformat(text)
        except ValueError:
            return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no date such as 2027-01-31, and no time such as 2027-01-31T12:00:00+01:00"
        ) from None


def _action(text: str) -> Action:
    known = [each.value for each in Action]
    if text not in known:
        raise ValueError(f"{text!r} is none of: {', '.join(known)}{didYouMean(text, known)}")
    return Action(text)


_FILE: Final = click.option(
    "--accounts",
    "-a",
    "path",
    type=ParsedType("file", _path),
    required=True,
    metavar="FILE",
    help="The file of the accounts. It is needed.",
)
_NAME: Final = click.argument("name")


def _accountCommand(help: str, *those: Any) -> Callable[[Callable[..., int | None]], click.Command]:
    """Make a command of a function that is called with the console and the path of the file."""

    def decorate(function: Callable[..., int | None]) -> click.Command:
        @wraps(function)
        def call(console: Console, /, path: Path, **given: Any) -> int | None:
            try:
                return function(console, path, **given)
            except InvalidDescription as error:
                raise CommandError(str(error)) from None
            except CannotEdit as error:
                raise CommandError(f"{path}: {error}") from None

        return makeCommand(help)(options(*those, _FILE)(call))

    return decorate


@_accountCommand(
    "Add an account. Its password is asked for, or read.",
    click.argument("name", type=ParsedType("name", checkName)),
    click.option(
        "--role",
        "roles",
        metavar="ROLE",
        multiple=True,
        help="A role that it has. May come again.",
    ),
    click.option(
        "--certificate",
        metavar="NAME",
        help="The common name or the SHA-256 of the client's certificate.",
    ),
    click.option(
        "--no-password",
        is_flag=True,
        help="It has no password: only tokens or a certificate.",
    ),
)
def _add(
    console: Console,
    path: Path,
    name: str,
    roles: tuple[str, ...],
    certificate: str | None,
    no_password: bool,
) -> None:
    if path.exists() and name in readAccounts(path).accounts:
        raise CommandError(f"{path}: there is an account {name} already; see passwd and token")
    values: dict[str, Any] = {"roles": list(roles)}
    if certificate:
        values["certificate"] = certificate
    # Mistakes are told before the password is asked for.
    _changed(path, lambda text: text.addAccount(name, values))
    if not no_password:
        values = {"password": hashPassword(readPassword(name)), **values}
    _change(path, lambda text: text.addAccount(name, values))
    granted = f"with the roles {', '.join(roles)}" if roles else "without a role"
    console.warn(f"{path}: added the account {name}, {granted}")


@_accountCommand("Give an account another password.", _NAME)
def _passwd(console: Console, path: Path, name: str) -> None:
    _account(path, name)
    hash = hashPassword(readPassword(name))
    _change(path, lambda text: text.setPassword(name, hash))
    console.warn(f"{path}: the account {name} has another password")


@_accountCommand(
    "Give an account one more token, and show it once.",
    _NAME,
    click.option(
        "--label", metavar="TEXT", help="What the token is called. [default: token-NUMBER]"
    ),
    click.option(
        "--expires",
        "until",
        type=ParsedType("time", _moment),
        metavar="TIME",
        help="The last day, or the time, at which it is valid: 2027-01-31.",
    ),
    jsonOption(),
)
def _token(
    console: Console,
    path: Path,
    name: str,
    label: str | None,
    until: date | datetime | None,
    asJson: bool,
) -> None:
    labels = {each.label for each in _account(path, name).tokens}
    token = TOKEN_PREFIX + token_urlsafe(_TOKEN_BYTES)
    hash = sha256(token.encode("ascii")).hexdigest()
    chosen = label or next(
        free for number in range(1, len(labels) + 2) if (free := f"token-{number}") not in labels
    )
    if not chosen.isprintable():
        raise CommandError("--label: it has characters that cannot be printed")
    _change(path, lambda text: text.addToken(name, chosen, hash, until))
    showRecord(console, {"name": name, "label": chosen, "token": token}, [token], asJson)
    console.warn(f"{path}: the account {name} has the token {chosen}; it is shown only now")


@_accountCommand(
    "List the accounts, without any secret.",
    jsonOption("Show each account as a line of JSON."),
)
def _list(console: Console, path: Path, asJson: bool) -> None:
    accounts = [*readAccounts(path).accounts.values()]
    if asJson:
        for account in accounts:
            console.sayJson(_fields(account))
        return
    lines = [f"{account.name}: {'; '.join(_describe(account))}" for account in accounts]
    rows = [
        (account.name, ", ".join(account.roles), "; ".join(_logins(account)))
        for account in accounts
    ]
    showTable(console, ("account", "roles", "logs in with"), rows, lines)


def _fields(account: Account) -> dict[str, Any]:
    return {
        "name": account.name,
        "roles": account.roles,
        "password": bool(account.password),
        "certificate": account.certificate or None,
        "tokens": [
            {"label": token.label, "expiresAt": token.expiresAt} for token in account.tokens
        ],
    }


def _describe(account: Account) -> Iterator[str]:
    yield f"roles {', '.join(account.roles)}" if account.roles else "no role"
    yield from _logins(account)


def _logins(account: Account) -> Iterator[str]:
    if account.password:
        yield "a password"
    if account.certificate:
        yield f"certificate {quoted(account.certificate)}"
    for token in account.tokens:
        until = ""
        if token.expiresAt is not None:
            until = f" until {timeText(int(token.expiresAt * 1000))}"
        yield f"token {token.label}{until}"


@_accountCommand(
    "Remove an account, or one of its tokens.",
    _NAME,
    click.option(
        "--token", "label", metavar="LABEL", help="Remove only the token with this label."
    ),
)
def _remove(console: Console, path: Path, name: str, label: str | None) -> None:
    account = _account(path, name)
    if not label:
        _change(path, lambda text: text.removeAccount(name))
        console.warn(f"{path}: removed the account {name}")
        return
    labels = [each.label for each in account.tokens]
    if label not in labels:
        hint = didYouMean(label, labels)
        raise CommandError(f"{path}: {name} has no token {quoted(label)}{hint}")
    _change(path, lambda text: text.removeToken(name, label))
    console.warn(f"{path}: removed the token {label} of {name}")


@_accountCommand(
    "Say whether an account may do something, and why.",
    _NAME,
    click.argument("action", type=ParsedType("action", _action)),
    click.argument("group"),
    click.argument("topic", default=""),
    click.option(
        "--client-id", default="", metavar="ID", help="The MQTT client id, for grants with %c."
    ),
    jsonOption("Show the answer as a line of JSON."),
)
def _may(
    console: Console,
    path: Path,
    name: str,
    action: Action,
    group: str,
    topic: str,
    client_id: str,
    asJson: bool,
) -> int:
    grants = _account(path, name).identity.grants
    decision = grants.decide(action, group, topic, client_id)
    if asJson:
        answer = {"granted": decision.isGranted, "reason": decision.reason}
        console.sayJson({**answer, "role": decision.role or None})
        return Exit.GOOD if decision.isGranted else Exit.BAD
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


def _account(path: Path, name: str) -> Account:
    accounts = readAccounts(path).accounts
    if name not in accounts:
        hint = didYouMean(name, list(accounts))
        raise CommandError(f"{path}: there is no account {quoted(name)}{hint}")
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
    """Replace a file as a whole."""
    replaceFile(path, _changed(path, change))


HELP: Final = (
    "The daemon is started with --accounts FILE. It reads the file again on SIGHUP and by: "
    "svcbroker admin reload."
)
COMMANDS: Final = (
    Command.of(
        "add", _add, "svcbroker admin account add ann --role publisher --accounts accounts.toml"
    ),
    Command.of("passwd", _passwd, "svcbroker admin account passwd ann --accounts accounts.toml"),
    Command.of(
        "token",
        _token,
        "svcbroker admin account token ann --expires 2027-01-31 --accounts accounts.toml",
    ),
    Command.of("list", _list, "svcbroker admin account list --accounts accounts.toml"),
    Command.of(
        "remove",
        _remove,
        "svcbroker admin account remove ann --token token-1 --accounts accounts.toml",
    ),
    Command.of(
        "may",
        _may,
        "svcbroker admin account may ann publish 1 weather/zurich --accounts accounts.toml",
    ),
)
