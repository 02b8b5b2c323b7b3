"""
Webhooks: events are sent to URLs by POST.

C{targets} reads the URLs that events are sent to, C{messages} the requests and answers, C{signing}
the secrets, C{headers} those that clients add, C{deadletters} what becomes of events that are given
up, and C{records} what is kept: they know no transport. C{delivery} is the life of one webhook's
subscription, C{sending} what it does while it may send, C{webhook} ties it to what is kept, and
C{webhooks} holds them all. C{posting} makes requests through L{svcbroker.net.http}, and C{feature}
is what the daemon is given.
"""

from .records import KIND, WebhookRecord, decodeRecord
from .settings import WebhookSettings
from .signing import Signer
from .webhooks import Webhooks

__all__ = [
    "KIND",
    "Signer",
    "WebhookRecord",
    "WebhookSettings",
    "Webhooks",
    "decodeRecord",
]
