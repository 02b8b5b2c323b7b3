"""
Events to be published, as carriers read them.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from attrs import define, frozen
from twisted.internet.defer import Deferred

from ..access import Principal
from ..chain import isSignedBy, statement
from ..errors import SignatureInvalid
from ..interfaces import ILedger
from ..model import Authorship, PublishEvent
from ._brokervalues import Answer


class Publication(PublishEvent, frozen=True, kw_only=True):
    """
    An event to be published, as a carrier read it; nothing of it was checked yet.

    @ivar groupId: the group, as the client says it.
    """

    groupId: str | None = None


def authorshipOf(
    author: bytes | None, signature: bytes | None, signedAt: int | None
) -> Authorship | None:
    """
    The authorship of an event, by the parameters of its publish.

    @return: C{None} where there are no such parameters.
    @raise SignatureInvalid: there are some of the three, but not all.
    """
    if author is None and signature is None and signedAt is None:
        return None
    given = {"author": author, "signature": signature, "signedAt": signedAt}
    for name, value in given.items():
        if value is None:
            raise SignatureInvalid(f"{name}: a signed event needs it")
    assert author is not None
    assert signature is not None
    assert signedAt is not None
    return Authorship(key=author, signedAt=signedAt, signature=signature)


@frozen(kw_only=True)
class PublishPolicy:
    """
    The wishes of a carrier for its publishes.

    @ivar carrier: the name of the carrier, for metrics.
    @ivar hasTimeout: whether an answer comes after the chain's time-out at the latest. Otherwise it
        comes when the outcome is known.
    @ivar opensTopics: whether publishing to a topic that is not open opens it. Otherwise it is
        refused.
    @ivar mayBeEmpty: whether an event may have no content.
    @ivar stopsAtRefusal: whether the events after a refused one are refused too, with its error.
    @ivar wantsResults: whether published events are answered with a L{SendResult}. Otherwise their
        answer is C{None}, which costs nothing, and any other outcome is an error.
    @ivar isWhole: whether no event is published where the quotas of the account have no room for
        all. Otherwise the first are for which they have.
    @ivar isPaced: whether the carrier itself waits for L{REFUSAL_DELAY} before it reads on from a
        client over a quota. Otherwise the answer comes so much later.
    """

    carrier: str = "http"
    hasTimeout: bool = True
    opensTopics: bool = False
    mayBeEmpty: bool = False
    stopsAtRefusal: bool = False
    wantsResults: bool = True
    isWhole: bool = False
    isPaced: bool = False


DEFAULT_POLICY: Final = PublishPolicy()
"""The policy of REST and JSON-RPC."""


@define(eq=False)
class PublishBatch:
    """
    Events that were published in one call.

    @ivar answers: the answer to each event; C{None} while it is not known. Events that a check has
        refused are answered from the beginning.
    @ivar hasRefused: whether there are such events.
    @ivar done: fires with the answers when they are complete, or at the chain's time-out where the
        policy has one. The broker never fails it.
    """

    answers: list[Answer | None]
    hasRefused: bool
    done: Deferred[Any]


def prepare(ledger: ILedger, principal: Principal, publication: Publication) -> Publication:
    """
    Check the signature of an event, and name the account that owns its idempotency key.

    @return: the event as it is submitted, with the version of the statement that is signed.
    @raise SignatureInvalid: the signature is not the author's.
    """
    author = publication.author
    if author is None:
        if publication.publisher == principal.name:
            return publication
        return msgspec.structs.replace(publication, publisher=principal.name)
    # A ledger that does not tell its chain checks signatures alone.
    if not ledger.chain:
        return publication
    expected = publication.expectedSequence
    # The signature tells which version was signed; most authors who expect a number sign version 2.
    for version in (1, 2) if expected is None else (2, 1):
        signed = statement(
            ledger.chain,
            publication.topic,
            publication.content,
            author.signedAt,
            publication.idempotencyKey,
            publication.extensions,
            version,
            expected,
        )
        if isSignedBy(author, signed):
            if version == author.statement:
                return publication
            author = msgspec.structs.replace(author, statement=version)
            return msgspec.structs.replace(publication, author=author)
    raise SignatureInvalid()
