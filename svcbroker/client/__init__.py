"""
Clients of svcbroker for Python.

L{Client} blocks, L{AsyncClient} is for asyncio and trio, and
L{TwistedClient<svcbroker.client.twisted.TwistedClient>} for Twisted. They have the same calls::

    from svcbroker.client import Client

    with Client("http://127.0.0.1:8080/svcbroker") as client:
        client.publish("orders/new", b"...")
        for event in client.follow("orders/#", after=position):
            print(event.eventId, event.content)

All of them need httpx, msgspec and attrs only (the Twisted one treq instead of httpx), and
cryptography to verify, to sign and to open closed events. C{docs/client.rst} has more.
"""

from ..errors import BrokerError
from ._confidential import AuthorKey, PassphraseMissing
from ._core import Options
from ._effects import AnswerInvalid, NotVerified, Unreachable
from ._httpx import AsyncClient, Client
from ._receipts import Receipts
from ._records import (
    CheckpointRecord,
    ClosedEvent,
    Event,
    Found,
    OpenedEvent,
    Publication,
    Published,
    TopicInfo,
    TopicState,
)

__all__ = [
    "AnswerInvalid",
    "AsyncClient",
    "AuthorKey",
    "BrokerError",
    "CheckpointRecord",
    "Client",
    "ClosedEvent",
    "Event",
    "Found",
    "NotVerified",
    "OpenedEvent",
    "Options",
    "PassphraseMissing",
    "Publication",
    "Published",
    "Receipts",
    "TopicInfo",
    "TopicState",
    "Unreachable",
]
