"""
Reading what another broker answers to C{listSubscription}.

All of it is checked: the program that answers may be no broker.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Sequence
from time import strptime
from typing import Any, Final, NoReturn

import msgspec

from ..errors import GroupUnknown
from ..model import InterfaceType, SubscriptionRecord
from ._failures import ErrorRecord
from ._results import Envelope, utc
from ._results import Subscription as SubscriptionOnWire

_ADDRESS: Final = re.compile(r"[!-+\--~]{1,300}")
"""Printable ASCII without spaces, and without the comma that stands between addresses."""
_COUNT: Final = re.compile(r"[0-9]{1,18}", re.ASCII)

_subscriptions: Final = msgspec.json.Decoder(Envelope[dict[str, dict[str, SubscriptionOnWire]]])
_errors: Final = msgspec.json.Decoder(ErrorRecord)


class AnswerInvalid(Exception):
    """
    An answer that cannot be used. The text is the end of a sentence that begins with the node.
    """


def readSubscriptions(data: bytes, group: str | None) -> Sequence[SubscriptionRecord]:
    """
    Read the answer to C{listSubscription} of one node.

    @param group: the group that was asked for; C{None} where all were.
    @raise GroupUnknown: the node does not serve the group.
    @raise AnswerInvalid: it is no such answer.
    """
    nodes = _decode(_subscriptions, data)
    if len(nodes) != 1:
        raise AnswerInvalid("answered with the subscriptions of others, not with its own")
    ((address, told),) = nodes.items()
    if not _ADDRESS.fullmatch(address):
        raise AnswerInvalid("answered with an address that cannot be one")
    records = []
    for subscriptionId, each in told.items():
        if each.subscribeId != subscriptionId or group not in (None, each.groupId):
            raise AnswerInvalid("answered with subscriptions that were not asked for")
        records.append(_record(each))
    return records


def _decode(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data).data
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        _refuse(data)


def _refuse(data: bytes) -> NoReturn:
    """Raise the error for data that is no answer."""
    try:
        code = _errors.decode(data).code
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise AnswerInvalid("answered with something that is no answer to this") from None
    if code == GroupUnknown.code:
        raise GroupUnknown()
    # Its words are not shown: they may be anything.
    raise AnswerInvalid(f"answered with error {code}")


def _record(told: SubscriptionOnWire) -> SubscriptionRecord:
    return SubscriptionRecord(
        subscriptionId=told.subscribeId,
        interfaceType=InterfaceType(told.interfaceType),
        group=told.groupId,
        filters=tuple(told.topicName.split(",")),
        remote=told.remoteIp,
        notified=_count(told.notifiedEventCount),
        notifying=_count(told.notifyingEventCount),
        notifiedAt=_milliseconds(told.notifyTimeStamp),
        createdAt=_milliseconds(told.createTimeStamp),
    )


def _count(text: str) -> int:
    if not _COUNT.fullmatch(text):
        raise AnswerInvalid("answered with a number that is none")
    return int(text)


def _milliseconds(text: str) -> int:
    try:
        found = timegm(strptime(text, "%Y-%m-%d %H:%M:%S")) * 1000
    except ValueError:
        found = None
    # Formatted again too: the parser accepts more than one spelling of a time.
    if found is None or utc(found) != text:
        raise AnswerInvalid("answered with a time that is none")
    return found
