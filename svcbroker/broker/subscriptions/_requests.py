"""
What is read from requests for subscriptions, and who may still make them.
"""

from __future__ import annotations

from uuid import UUID

from ...access import Principal
from ...errors import NotAuthenticated, SubscriptionIdInvalid
from ...model import InterfaceType, SubscribeRequest


def kindOf(request: SubscribeRequest) -> tuple[str, bool]:
    """
    What a subscription counts as: C{mqtt}, C{stomp}, C{webhook} or C{follow}; and whether it is
    durable.
    """
    isDurable = request.isDurable
    if request.interfaceType is InterfaceType.MQTT:
        return "mqtt", isDurable
    if request.interfaceType is InterfaceType.STOMP:
        return "stomp", isDurable
    return "webhook" if isDurable else "follow", isDurable


def checkLogIn(principal: Principal) -> None:
    """
    Check that a principal may still act, after something that took its time.

    @raise NotAuthenticated: its log-in has ended.
    """
    if principal.isRevoked:
        raise NotAuthenticated("the log-in has ended")


def canonicalId(asked: str) -> str:
    """
    The id of a subscription as it is kept: a UUID in lower case with hyphens.

    @raise SubscriptionIdInvalid: it is no UUID, or one without hyphens.
    """
    try:
        canonical = str(UUID(asked))
    except ValueError:
        raise SubscriptionIdInvalid() from None
    if len(asked) != len(canonical):
        raise SubscriptionIdInvalid()
    return canonical
