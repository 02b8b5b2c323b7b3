"""
The authors of topics: given when a topic is opened first, and changed by signed changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..access import Principal
from ..chain import authorsStatement, isUsableKey, verifySignature
from ..errors import (
    AuthorRefused,
    ParameterInvalid,
    SignatureInvalid,
    TopicNotFound,
    TransactionFailed,
)
from ..interfaces import Action, isDecidedByChain, submit
from ..model import AuthorChange, AuthorSet, ChangeAuthors, Execution, Topic
from ..net.deferreds import asDeferred
from ._groups import Groups, TimeoutQueue, checkTopic


def authorSetOf(
    known: Topic | None, authors: Sequence[bytes] | None, admins: Sequence[bytes] | None
) -> AuthorSet | None:
    """
    The authors that a topic is opened with.

    @param known: the topic, if it was opened before.
    @return: C{None} where there is no parameter for them.
    @raise ParameterInvalid: there are admins and no authors, or a key of a new topic is not usable.
    @raise AuthorRefused: the topic has others.
    """
    if authors is None:
        if admins is not None:
            raise ParameterInvalid("admins: there are no authors")
        return None
    wanted = AuthorSet(authors=tuple(authors), admins=tuple(admins or ()))
    if known is None:
        _checkKeys(wanted)
    else:
        current = known.authors
        if current is None or (current.authors, current.admins) != (wanted.authors, wanted.admins):
            raise AuthorRefused("topic exists and has other authors")
    return wanted


def _checkKeys(wanted: AuthorSet, current: AuthorSet | None = None) -> None:
    """
    Check the keys of a set of authors that a topic does not have yet.

    @param current: the topic's authors, whose keys are not checked.
    @raise ParameterInvalid: nobody can sign with one of them, or everybody can.
    """
    known = () if current is None else (*current.authors, *current.admins)
    for name, keys in (("authors", wanted.authors), ("admins", wanted.admins)):
        for key in keys:
            if key not in known and not isUsableKey(key):
                raise ParameterInvalid(
                    f"{name}: {key.hex()} is not a usable Ed25519 key: not canonical, of low "
                    "order, or no point of the curve"
                )


def _isDone(known: Topic | None, following: AuthorSet, admin: bytes) -> bool:
    """
    Whether a topic has a set of authors already.

    @param known: the topic, if it was opened before.
    @param admin: the key that wants to change its authors to this set.
    @raise TopicNotFound, AuthorRefused, ParameterInvalid: it cannot get this set.
    """
    if known is None or not known.isOpen:
        raise TopicNotFound()
    current = known.authors
    if current == following:
        return True
    if current is None:
        raise AuthorRefused("topic has no authors: it gets them when it is opened first")
    if admin not in current.admins:
        raise AuthorRefused("this key may not change the authors of the topic")
    if following.generation != current.generation + 1:
        raise ParameterInvalid(f"generation: the next one is {current.generation + 1}")
    _checkKeys(following, current)
    return False


class TopicAuthors:
    """
    Changes of the authors of topics. They are authorised by signatures; the account only needs the
    right to open the topic.
    """

    def __init__(self, groups: Groups, timeouts: TimeoutQueue) -> None:
        self._groups = groups
        self._timeouts = timeouts

    @asDeferred
    async def change(
        self,
        principal: Principal,
        groupId: str | None,
        topic: str,
        generation: int,
        authors: Sequence[bytes],
        admin: bytes,
        signature: bytes,
        admins: Sequence[bytes] = (),
    ) -> bool:
        """
        Change who may publish to a topic. Always C{True}; the same change again changes nothing.

        @param generation: that of the new set: one more than that of the current set.
        @param authors: the public keys of those who may publish, rising.
        @param admins: those of the keys that may change the set, rising.
        @param admin: the public key of an admin of the current set.
        @param signature: its signature of the change.
        @raise TopicBlank, TopicTooLong, TopicInvalid: this is no topic's name.
        @raise TopicNotFound: there is no such open topic.
        @raise AuthorRefused: the topic has no authors, or this key may not change them.
        @raise ParameterInvalid: the current set has another generation.
        @raise SignatureInvalid: the signature is not the admin's.
        @raise TransactionFailed: the chain refused.
        """
        group, ledger = self._groups.find(principal, groupId)
        checkTopic(ledger, topic)
        principal.require(Action.OPEN, group, topic)
        following = AuthorSet(generation=generation, authors=tuple(authors), admins=tuple(admins))
        isDecided = isDecidedByChain(ledger)
        if not isDecided and _isDone(ledger.topicState(topic), following, admin):
            return True
        # A ledger that does not tell its chain checks signatures alone.
        if ledger.chain and not verifySignature(
            admin, authorsStatement(ledger.chain, topic, following), signature
        ):
            raise SignatureInvalid("signature is not that of the admin")
        change = AuthorChange(following=following, admin=admin, signature=signature)
        request = ChangeAuthors(topic=topic, change=change)
        receipt = await self._timeouts.wait(submit(ledger, request))
        if receipt.execution is Execution.TOPIC_NOT_FOUND:
            raise TopicNotFound()
        if receipt.execution is Execution.REFUSED:
            # This node is as far as the receipt now.
            if isDecided and _isDone(ledger.topicState(topic), following, admin):
                return True
            raise SignatureInvalid("signature is not the admin's, or another change was first")
        if receipt.execution is not Execution.DONE:
            raise TransactionFailed()
        return True
