"""
Web hooks: events are sent to URLs by POST.

C{targets} and C{addresses} decide where events may be sent, C{messages} what is sent and what an
answer means: they know no transport. C{slots} bounds how much goes on at the same time,
C{delivery} is the life of one web hook and C{webhooks} holds them all. C{posting} makes requests,
and C{connecting} is the one module that touches a transport.
"""

from .addresses import AddressPolicy, parseAllowed
from .making import makeWebhooks
from .messages import Signer, parseSecrets
from .settings import WebhookSettings
from .webhooks import Webhooks

__all__ = [
    "AddressPolicy",
    "Signer",
    "WebhookSettings",
    "Webhooks",
    "makeWebhooks",
    "parseAllowed",
    "parseSecrets",
]
