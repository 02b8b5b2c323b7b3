"""
Webhooks as they are kept in the metadata store, and what they ask of the subscription core.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from ...model import EventFormat, InterfaceType, Offset, SubscribeRequest
from ...operations import sourceOf
from .posting import RequestForm, WebhookReceiver, WebhookTarget

KIND: Final = "webhook"
"""The kind of these entries in the metadata store."""
DEAD_LETTERS: Final = "$svc/dead/"
"""The beginning of the topic of a webhook's dead letters where it names none; its id follows."""


class WebhookRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    A webhook in the metadata store. Fields with defaults are absent where an earlier release has
    written it.

    @ivar start: where it began: the height of a block, and the index of a transaction.
    @ivar account: the name of the account that made it; empty where there were no credentials.
    @ivar headers: more headers of each request. They may hold secrets.
    @ivar secret: the name of the secret that signs; empty for the shared ones.
    @ivar certificate: the name of the certificate that is shown; empty for none.
    @ivar batch: the most events in a request; 0 sends one, and not in an array.
    @ivar batchSeconds: how long the first event of a batch waits for others.
    @ivar maxAttempts: how often an event is tried; 0 has no end.
    @ivar deadLetter: the topic of its dead letters; empty for its own below L{DEAD_LETTERS}.
    @ivar format: how its events are written.
    @ivar hasTombstones: whether erased events are sent too.
    @ivar isPaused: whether nothing is sent for now.
    @ivar failed: the event that has failed, by the height of its block and the index of its
        transaction, and how often. It means nothing once that event is acknowledged.
    """

    interfaceType: InterfaceType
    group: str
    filters: tuple[str, ...]
    tag: str | None
    url: str
    start: tuple[int, int]
    account: str = ""
    headers: Mapping[str, str] = {}
    secret: str = ""
    certificate: str = ""
    batch: int = 0
    batchSeconds: int = 0
    maxAttempts: int = 0
    deadLetter: str = ""
    format: EventFormat = EventFormat.SVC
    hasTombstones: bool = False
    isPaused: bool = False
    failed: tuple[int, int, int] | None = None

    def __repr__(self) -> str:
        return f"<WebhookRecord in group {self.group}>"

    def isSameAs(self, other: WebhookRecord) -> bool:
        """Whether the same was asked for: its state and where it began do not count."""
        return self._asked() == other._asked()

    def _asked(self) -> WebhookRecord:
        return replace(self, start=(0, 0), isPaused=False, failed=None)

    def request(
        self, subscriptionId: str, target: WebhookTarget, offset: Offset, *, mustExist: bool
    ) -> SubscribeRequest:
        """The request to the subscription core."""
        return SubscribeRequest(
            interfaceType=self.interfaceType,
            kind=KIND,
            group=self.group,
            filters=self.filters,
            offset=offset,
            tag=self.tag,
            subscriptionId=subscriptionId,
            remote=target.authority,
            mustExist=mustExist,
            isResumed=not mustExist,
            isDurable=True,
            isAcknowledged=True,
            hasTombstones=self.hasTombstones,
        )

    def receiver(self, subscriptionId: str, target: WebhookTarget, base: str) -> WebhookReceiver:
        """
        The receiver of its events, and how they are sent.

        @param base: the base path, with which the C{source} of CloudEvents begins.
        """
        form = RequestForm(
            interfaceType=self.interfaceType,
            subscriptionId=subscriptionId,
            format=self.format,
            source=sourceOf(base, self.group),
            isBatch=self.batch > 0,
        )
        return WebhookReceiver(
            target=target,
            form=form,
            secret=self.secret,
            certificate=self.certificate,
            headers=self.headers,
            group=self.group,
        )

    def deadLetterTopic(self, subscriptionId: str) -> str:
        """The topic of its dead letters."""
        return self.deadLetter or DEAD_LETTERS + subscriptionId


_decoder = msgspec.json.Decoder(WebhookRecord)


def decodeRecord(value: bytes) -> WebhookRecord:
    """
    Read an entry of the metadata store.

    @raise msgspec.MsgspecError: it is none.
    """
    return _decoder.decode(value)


def webhookGroup(kind: str, name: str, value: bytes) -> str:
    """See L{GroupOf<svcbroker.broker.GroupOf>}."""
    return decodeRecord(value).group
