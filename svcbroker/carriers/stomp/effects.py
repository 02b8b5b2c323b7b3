"""
What a session wants done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from attrs import field, frozen

from ...broker import Publication
from ...model import Event, SubscribeRequest
from .answers import Answer


@frozen
class Write:
    """Send bytes to the client."""

    data: bytes


@frozen
class Proceed:
    """Call C{Session.goOn} in a while: there may be more frames, or messages to be sent."""


@frozen
class LogIn:
    """
    Log the client in. What comes of it is told by C{Session.loggedIn} or C{failed}.

    @ivar login: the account's name, if the client gives one.
    @ivar passcode: its password, if the client gives one.
    """

    answer: Answer
    login: str | None
    passcode: str | None = field(repr=False)


@frozen
class Publish:
    """
    Publish events, in their order and after all that was to be published before; what comes of
    one is nothing to the others. It is told by L{Session.publishedEach
    <svcbroker.carriers.stomp.session.Session.publishedEach>}.

    @ivar answers: the answer to each.
    """

    answers: list[Answer]
    publications: list[Publication]


@frozen
class PublishAll:
    """
    Publish events in order, if all their topics are there; otherwise none. What comes of it is
    told by L{Session.published<svcbroker.carriers.stomp.session.Session.published>} or C{failed};
    C{Session.proceed} tells that they have gone their way.
    """

    answer: Answer
    publications: Sequence[Publication]


@frozen
class Subscribe:
    """
    Make a subscription. What comes of it is told by C{Session.subscribed} or C{failed}. All that
    the client has published before it is answered.

    @ivar number: what the subscription is called between session and carrier.
    """

    answer: Answer
    number: int
    request: SubscribeRequest


@frozen
class Resume:
    """Let a subscription's events flow."""

    number: int


@frozen
class Pause:
    """Let no more of a subscription's events flow."""

    number: int


@frozen
class Acknowledge:
    """The client has got these events of a subscription for good."""

    number: int
    events: Sequence[Event]


@frozen
class Unsubscribe:
    """
    End a subscription.

    @ivar isForgotten: whether its position is forgotten too.
    """

    number: int
    isForgotten: bool


@frozen
class Close:
    """
    Close the connection, and end whatever subscriptions there are.

    @ivar isAbrupt: whether the client may still be sending.
    """

    isAbrupt: bool


Effect: TypeAlias = (
    Write
    | Proceed
    | LogIn
    | Publish
    | PublishAll
    | Subscribe
    | Resume
    | Pause
    | Acknowledge
    | Unsubscribe
    | Close
)
