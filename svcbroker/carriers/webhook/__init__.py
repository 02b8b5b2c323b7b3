"""
Webhooks: events are sent to URLs by POST.

C{targets} reads the URLs that events are sent to, C{messages} the requests and answers, C{signing}
the secrets: they know no transport. C{slots} bounds how many requests are under way, C{delivery} is
the life of one webhook, and C{webhooks} holds them all. C{posting} makes requests through
L{svcbroker.net.http}.
"""

from .settings import WebhookSettings
from .signing import NO_SECRETS, Secrets, Signer, parseSecrets
from .webhooks import Webhooks, makeWebhooks, webhookGroup

__all__ = [
    "NO_SECRETS",
    "Secrets",
    "Signer",
    "WebhookSettings",
    "Webhooks",
    "makeWebhooks",
    "parseSecrets",
    "webhookGroup",
]
