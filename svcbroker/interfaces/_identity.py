"""
The contracts of access: grants, identities, and the plugins that authenticate clients.
"""

# ruff: noqa: N805

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from attrs import field, frozen
from attrs.validators import gt, optional
from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.credentials import ICredentials
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.plugin import IPlugin
from zope.interface import Attribute, Interface, implementer


class Action(Enum):
    """
    The actions that can be granted.

    @cvar PUBLISH: to publish events to a topic.
    @cvar SUBSCRIBE: to subscribe to a topic and to read its events.
    @cvar OPEN: to create or open a topic.
    @cvar CLOSE: to close a topic.
    @cvar ADMIN: to make the admin queries of a group.
    @cvar OPERATE: to make the operator calls of a group, to see the subscriptions of others, and to
        copy the chain with all its events. Grants include L{METRICS}.
    @cvar METRICS: to read the metrics, which takes it in all groups.
    @cvar HOLD: to keep events from being erased, and to release them.
    @cvar COPY: to copy the chain with all its events, and nothing else.
    """

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    OPEN = "open"
    CLOSE = "close"
    ADMIN = "admin"
    OPERATE = "operate"
    METRICS = "metrics"
    COPY = "copy"
    HOLD = "hold"


TOPIC_ACTIONS = (Action.PUBLISH, Action.SUBSCRIBE, Action.OPEN, Action.CLOSE)
"""The actions that are granted for topics; the others are granted for whole groups."""


@frozen
class Decision:
    """
    Whether something is granted.

    @ivar reason: the line that decided it, as the operator wrote it, or why there is none.
    @ivar role: the role that has the line; empty where the line is of no role.
    """

    isGranted: bool
    reason: str
    role: str = ""


@frozen
class GrantLine:
    """
    One line of what is granted to an account.

    @ivar text: the line, as the operator wrote it.
    @ivar role: the role that has it; empty where it is of no role.
    """

    text: str
    role: str = ""


class IGrants(Interface):
    """
    The grants of an account. Their answers never change; new grants are a new object.
    """

    isEverything: bool = Attribute("Whether everything is granted: nothing needs to be asked.")

    dependsOnClient: bool = Attribute("Whether the answers depend on the MQTT client id.")

    def decide(action: Action, group: str, topic: str, clientId: str) -> Decision:
        """
        Whether an action is granted. Called once for each connection or account, action and
        topic: the answer is remembered.

        @param group: the id of a group.
        @param topic: the topic; empty for actions on a whole group.
        @param clientId: the MQTT client id; empty on other carriers.
        """

    def mayAny(action: Action, group: str | None, filter: str, clientId: str) -> bool:
        """
        Whether an action is granted for some topic that a filter may match.

        @param group: the id of a group; C{None} for any group.
        """

    def describe(group: str | None) -> Sequence[GrantLine]:
        """
        The lines that are about a group, those that deny included. Operators and the account itself
        read them.

        @param group: the id of a group; C{None} for all lines.
        """


class IGroupGrants(IGrants):
    """
    Grants that know whether they are about a group at all. Of other L{IGrants} the topics that C{#}
    and C{$svc/#} match are asked for, and what is granted below another C{$} lets no client in.
    """

    def seesGroup(group: str, clientId: str) -> bool:
        """
        Whether some action is granted in a group. Called once for each connection or account and
        group: the answer is remembered.

        @param group: the id of a group, which need not exist.
        @param clientId: the MQTT client id; empty on other carriers.
        """


@frozen(kw_only=True)
class Quotas:
    """
    The most that an account may use. C{None} is unlimited.

    @ivar publishes: events a second.
    @ivar bytes: bytes of content and extensions a second.
    @ivar connections: open connections.
    @ivar subscriptions: live subscriptions.
    @ivar sessions: MQTT sessions and durable positions that are kept while the client is away.
    @ivar retained: retained messages.
    @ivar inflight: publishes that wait for their answer.
    """

    publishes: float | None = field(default=None, validator=optional(gt(0)))
    bytes: float | None = field(default=None, validator=optional(gt(0)))
    connections: int | None = field(default=None, validator=optional(gt(0)))
    subscriptions: int | None = field(default=None, validator=optional(gt(0)))
    sessions: int | None = field(default=None, validator=optional(gt(0)))
    retained: int | None = field(default=None, validator=optional(gt(0)))
    inflight: int | None = field(default=None, validator=optional(gt(0)))


@frozen(kw_only=True)
class Identity:
    """
    An account, as an authenticator found it.

    @ivar name: its name, which is unique over all authenticators; empty for clients without
        credentials.
    @ivar grants: what it may do.
    @ivar quotas: how much it may use; C{None} for the default.
    @ivar expiresAt: when the log-in ends, in seconds since the epoch; C{None} for never.
    @ivar credential: with which credential of the account the client has logged in: any text, such
        as a hash. Empty where a log-in does not depend on one credential, and from C{identify}.
    @ivar credentials: those that the account has. A log-in ends when a reload takes its own away.
    """

    name: str
    grants: Any
    quotas: Quotas | None = None
    expiresAt: float | None = None
    credential: str = field(default="", repr=False)
    credentials: frozenset[str] = field(default=frozenset(), eq=False, repr=False)


class IBearerToken(ICredentials, Interface):
    """
    A token, as HTTP sends it: C{Authorization: Bearer}.
    """

    token: str = Attribute("The token.")


@implementer(IBearerToken)
@frozen
class BearerToken:
    """See L{IBearerToken}."""

    token: str = field(repr=False)


class IAccountToken(ICredentials, Interface):
    """
    The name and the password of a client, to be compared with the tokens of that account. Unlike a
    password, a token is checked at once, before the log-in has to wait for anything.
    """

    name: str = Attribute("The account's name.")

    token: str = Attribute("What may be a token.")


@implementer(IAccountToken)
@frozen
class AccountToken:
    """See L{IAccountToken}."""

    name: str
    token: str = field(repr=False)


class IClientCertificate(ICredentials, Interface):
    """
    A client certificate that TLS has verified.
    """

    commonName: str = Attribute("The subject's common name; empty where it has none.")

    fingerprint: str = Attribute("The SHA-256 of the certificate: 64 lower-case hex digits.")


@implementer(IClientCertificate)
@frozen
class ClientCertificate:
    """See L{IClientCertificate}."""

    commonName: str
    fingerprint: str


class IAuthenticator(ICredentialsChecker, Interface):
    """
    Finds the identity of credentials: a C{twisted.cred} checker whose avatar ids are
    L{Identity} objects.

    C{requestAvatarId}, whose Deferred fires with one, must not hold the reactor, and take as long
    for an unknown name as for a known one. It fails with
    C{twisted.cred.error.UnauthorizedLogin} for credentials that are not valid. Passwords
    (C{IUsernamePassword}) are checked in turn, two at a time and one of an address; all other
    credentials are checked as they come, so that must cost next to nothing.
    """

    def start() -> Deferred[None]:
        """
        Read what is needed. Called once, before anything else.

        @raise InvalidDescription: it cannot be used.
        """

    def reload() -> Deferred[Callable[[], None]]:
        """
        Read again what may have changed, and check it. Nothing changes yet, because another file
        may be wrong.

        @return: fires with what applies it. That is called at once or never, and does not fail.
        @raise InvalidDescription: it is not valid.
        """

    def identify(name: str) -> Identity | None:
        """
        The identity of a name as it is now, for connections that are open and webhooks that are
        kept; C{None} where there is no such account, or none without its credentials.
        """

    def names() -> Iterable[str]:
        """
        The names of all accounts that L{identify} knows. Called when operators list the accounts.
        """

    def stop() -> None:
        """Release everything."""


@frozen(kw_only=True)
class AuthenticatorContext:
    """
    The reactor, clock and threads that an authenticator is given.

    @ivar reactor: the clock and the network.
    @ivar now: the wall clock: seconds since the epoch.
    @ivar entropy: C{entropy(n)} gives C{n} unguessable bytes.
    @ivar runInThread: C{runInThread(f, *args)} runs blocking work in one of a few threads.
    """

    reactor: IReactorTime
    now: Callable[[], float]
    entropy: Callable[[int], bytes]
    runInThread: Callable[..., Deferred[Any]]


class IAuthenticatorFactory(IPlugin, Interface):
    """
    A kind of authenticator, chosen by the first word of a description such as
    C{mosquitto:passwords=FILE:acl=FILE}.

    A plugin module under C{twisted/plugins/} provides instances of it; the option parser finds
    them with C{twisted.plugin.getPlugins}.
    """

    name: str = Attribute("The first word of its descriptions.")

    summary: str = Attribute("What it is, in a line, for --help-auth.")

    settings: Mapping[str, str] = Attribute(
        "What may follow the name: each setting's key, and its meaning in a line."
    )

    def configure(
        settings: Mapping[str, str],
    ) -> Callable[[AuthenticatorContext], IAuthenticator]:
        """
        Check a description's settings and remember them. Has no side effects.

        @return: what makes the authenticator; it is called once.
        @raise InvalidDescription: a setting is unknown or has a bad value.
        """
