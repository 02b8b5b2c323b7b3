"""
Checks of accounts: clients that cannot log in, grants that never apply, and weak passwords.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from attrs import frozen

from ...access import DEFAULT_COST, Account, AccountTable, Grant, Grants, costOf, grantsOf
from ...access.authenticators.mosquitto import USUAL_ITERATIONS, PasswordHash, readPasswords
from ...interfaces import Action, InvalidDescription
from ...model import filterCovers
from ...net.descriptions import absolutePath, readDescription
from ...net.findings import DAY, Finding, date, good, listed, problem, warning
from .machinechecks import isReadable

_ACCOUNTS = "accounts"

_TOKEN_ENDS_SOON = 14 * DAY
"""Seconds before the end of a token at which its client should have a new one."""


@frozen(kw_only=True)
class AccountFacts:
    """
    Facts about the accounts.

    @ivar file: their file.
    @ivar table: what it holds.
    @ivar isReadable: whether every user of this machine may read the file.
    @ivar groups: the groups that are served.
    @ivar takesCertificates: whether some endpoint asks clients for certificates.
    @ivar operatesLocally: whether users of this machine who may read the data directory can
        operate the daemon without an account.
    """

    file: Path
    table: AccountTable
    isReadable: bool = False
    groups: Collection[str]
    takesCertificates: bool = False
    operatesLocally: bool = True


@frozen(kw_only=True)
class PasswordFileFacts:
    """
    Facts about mosquitto's password file.

    @ivar error: why it cannot be used; empty where it can.
    @ivar users: how many it has.
    @ivar cheap: those whose hashes have fewer than L{USUAL_ITERATIONS}.
    @ivar isReadable: whether every user of this machine may read the file.
    """

    file: Path
    error: str = ""
    users: int = 0
    cheap: Collection[str] = ()
    isReadable: bool = False


def checkAccounts(facts: AccountFacts, now: float) -> Iterator[Finding]:
    """Check whether the accounts can be used, and what of them never applies."""
    found = [*_checkFile(facts), *_checkOperator(facts)]
    for account in facts.table.accounts.values():
        found.extend(_checkAccount(facts, account, now))
    if found:
        yield from found
        return
    yield good(_ACCOUNTS, f"{len(facts.table.accounts)} accounts in {facts.file}")


def _checkFile(facts: AccountFacts) -> Iterator[Finding]:
    if not facts.table.accounts:
        yield problem(
            _ACCOUNTS,
            f"{facts.file} has no account",
            "no client can log in",
            f"svcbroker admin account add --accounts {facts.file} NAME --role operator",
        )
    if facts.isReadable:
        yield _readable(facts.file)


def _readable(file: Path) -> Finding:
    return warning(
        _ACCOUNTS,
        f"every user of this machine may read {file}",
        "they can try passwords against the hashes in it",
        f"chmod o= {file}",
    )


def _checkOperator(facts: AccountFacts) -> Iterator[Finding]:
    grants = [account.identity.grants for account in facts.table.accounts.values()]
    groups = [
        group
        for group in facts.groups
        if not any(each.decide(Action.OPERATE, group, "", "").isGranted for each in grants)
    ]
    if facts.table.accounts and groups:
        rest = (
            "only a user of this machine who may read the data directory can"
            if facts.operatesLocally
            else "and HTTP is on no loopback address, so that no command can"
        )
        yield warning(
            _ACCOUNTS,
            f"no account may operate group {listed(groups)}",
            f"no one can reset subscriptions, retry webhooks or erase events by an account: {rest}",
            f"svcbroker admin account add --accounts {facts.file} NAME --role operator",
        )


def _checkAccount(facts: AccountFacts, account: Account, now: float) -> Iterator[Finding]:
    name, file = account.name, facts.file
    if not (account.password or account.tokens or account.certificate):
        yield warning(
            _ACCOUNTS,
            f"{name} has neither a password nor a token nor a certificate",
            "no client can log in as it",
            f"svcbroker admin account passwd --accounts {file} {name}; or: svcbroker admin "
            "account remove "
            f"--accounts {file} {name}",
        )
    if not account.roles:
        yield warning(
            _ACCOUNTS, f"{name} has no role", "it may do nothing", f"give it roles in {file}"
        )
    if account.certificate and not facts.takesCertificates:
        yield warning(
            _ACCOUNTS,
            f"{name} logs in by a certificate, and no endpoint asks clients for one",
            "it cannot log in so",
            'serve an endpoint such as mqtt = "mtls:8883:certs=DIRECTORY:clients=FILE" (docs/tls)',
        )
    for token in account.tokens:
        if token.expiresAt is not None and token.expiresAt - now < _TOKEN_ENDS_SOON:
            ended = token.expiresAt <= now
            yield warning(
                _ACCOUNTS,
                f"the token {token.label} of {name} {'has ended' if ended else 'ends'} on "
                f"{date(token.expiresAt)}",
                "a client that uses it is refused" + ("" if ended else " from then on"),
                f"svcbroker admin account token --accounts {file} {name}, give it to the client; "
                "then: "
                f"svcbroker admin account remove --accounts {file} {name} --token {token.label}",
            )
    if account.password and _work(costOf(account.password)) < _work(DEFAULT_COST):
        yield warning(
            _ACCOUNTS,
            f"the password of {name} is hashed at the cost of {costOf(account.password)}",
            f"it is cheaper to guess than at the usual {DEFAULT_COST}, and each refused log-in "
            "verifies a hash of every cost in the file",
            f"svcbroker admin account passwd --accounts {file} {name}",
        )
    if isinstance(account.identity.grants, Grants):
        yield from _checkGrants(facts, name, account.identity.grants.grants)


def _work(cost: str) -> int:
    values = dict(each.split("=") for each in cost.split(","))
    return int(values["m"]) * int(values["t"])


def _checkGrants(facts: AccountFacts, name: str, grants: Collection[Grant]) -> Iterator[Finding]:
    denied = [grant for grant in grants if grant.isDenied]
    for grant in grants:
        if grant.group != "*" and grant.group not in facts.groups:
            yield warning(
                _ACCOUNTS,
                f"{name}: {grant.line!r} is about group {grant.group}, which is not served",
                "the line never applies",
                f"correct the group in {facts.file} (served: {listed(sorted(facts.groups))})",
            )
        for other in () if grant.isDenied else denied:
            if _isCovered(grant, other):
                yield warning(
                    _ACCOUNTS,
                    f"{name}: {grant.line!r} is denied again by {other.line!r}",
                    "a line that denies wins: the grant never applies",
                    f"remove one of the two in {facts.file}; svcbroker admin account may says "
                    "what wins",
                )


def _isCovered(grant: Grant, denied: Grant) -> bool:
    return (
        denied.actions >= grant.actions
        and denied.group in ("*", grant.group)
        and filterCovers(denied.pattern, grant.pattern)
    )


def checkPasswordFile(facts: PasswordFileFacts) -> Iterator[Finding]:
    """Check that mosquitto's password file can be used and its passwords are hard to guess."""
    if facts.error:
        yield problem(
            _ACCOUNTS,
            facts.error,
            "the daemon does not start with it",
            "correct the line, or --auth",
        )
        return
    found = []
    if facts.isReadable:
        found.append(_readable(facts.file))
    if facts.cheap:
        found.append(
            warning(
                _ACCOUNTS,
                f"{facts.file} has hashes of fewer than {USUAL_ITERATIONS:,} iterations: of "
                f"{listed(sorted(facts.cheap))}",
                "they are cheap to guess; mosquitto_passwd makes no others",
                "give these users accounts: svcbroker admin account add --accounts FILE NAME",
            )
        )
    yield from found or [good(_ACCOUNTS, f"{facts.users} users in {facts.file}")]


def checkAnonymous(lines: Iterable[str], groups: Iterable[str]) -> Iterator[Finding]:
    """Check whether clients without credentials may do what only operators should."""
    grants = grantsOf(lines)
    isOperator = any(
        grants.decide(action, group, "", "").isGranted
        for action in (Action.OPERATE, Action.ADMIN)
        for group in groups
    )
    if isOperator:
        yield problem(
            _ACCOUNTS,
            "clients without credentials may operate the broker (--anonymous)",
            "every program that reaches a port can reset subscriptions and erase events",
            "svcbroker admin account add --accounts FILE NAME --role operator, and take the "
            "grant away "
            "from --anonymous",
        )


_MOSQUITTO: Final = "mosquitto"


def readPasswordFile(text: str) -> PasswordFileFacts | None:
    """
    Read the facts about mosquitto's password file.

    @param text: the description of an authenticator.
    @return: C{None} where it is of another kind.
    """
    try:
        description = readDescription(text)
        path = absolutePath(description.settings.get("passwords", ""))
    except (InvalidDescription, ValueError):
        return None  # a mistake of the configuration
    if description.name != _MOSQUITTO:
        return None
    hashes: Mapping[str, PasswordHash] = {}
    error = ""
    try:
        hashes = readPasswords(path)
    except InvalidDescription as invalid:
        error = str(invalid)
    cheap = [name for name, each in hashes.items() if each.iterations < USUAL_ITERATIONS]
    return PasswordFileFacts(
        file=path, error=error, users=len(hashes), cheap=cheap, isReadable=isReadable(path)
    )
