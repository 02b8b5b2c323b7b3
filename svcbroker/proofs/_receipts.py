"""
Receipts of recipients: events by which a recipient signs up to where it has received a topic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec
from attrs import define, field, frozen
from msgspec import UNSET, Struct, UnsetType

from ..errors import BrokerError
from ..model import (
    EventId,
    TopicRule,
    checkFilter,
    checkTopicName,
    filterMatches,
    isPattern,
    topicPrefix,
)
from ._documents import Checkpoint, ProofInvalid, readFields
from ._verification import ProvedEvent

RECEIPT: Final = "svcbroker/receipt/1"
"""The format of receipts."""
RECEIPTS: Final = "receipts/"
"""The beginning of the topics that receipts are published to; the recipient's name follows."""
EXPECTED: Final = "recipients/"
"""The beginning of the topics that say whose receipts are expected; the topic follows."""
MAX_EXPECTED: Final = 64
"""The most recipients that are expected for a topic."""
SILENCE: Final = "Silence proves nothing: who has signed no receipt may have received all the same."
"""The sentence beside receipts, wherever they are shown."""

_MAX_SIZE: Final = 4096


class ReceiptFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The content of a receipt, as JSON.

    @ivar chain: the id of the chain.
    @ivar topic: a topic, or a pattern as MQTT has them.
    @ivar number: the number of the last event in its topic, from 1.
    @ivar eventId: the id of the last event. All events before it that the recipient may read and
        that the topic or pattern has were received, too.
    @ivar checkpoint: a block at or after the event's: C{HEIGHT:HASH}. The hash covers every event
        before it.
    @ivar means: C{processed} where the recipient's program had answered, C{received} where the
        events had only arrived.
    @ivar previous: the id of the receipt before it, of the same recipient and topic.
    """

    format: Literal["svcbroker/receipt/1"]
    chain: str
    topic: str
    number: int
    eventId: str
    checkpoint: str
    means: Literal["processed", "received"]
    previous: str | UnsetType = UNSET


class ExpectedFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The recipients whose receipts are expected for a topic, as JSON. The newest such event counts.

    @ivar chain: the id of the chain.
    @ivar topic: the topic.
    @ivar recipients: the names of the recipients: what follows C{receipts/}.
    """

    format: Literal["svcbroker/recipients/1"]
    chain: str
    topic: str
    recipients: list[str]


def encodeExpected(chain: bytes, topic: str, recipients: Sequence[str]) -> bytes:
    """
    The content that says whose receipts are expected for a topic.

    @raise ProofInvalid: it cannot be said so.
    """
    content = msgspec.json.encode(
        ExpectedFields(
            format="svcbroker/recipients/1",
            chain=chain.hex(),
            topic=topic,
            recipients=[*recipients],
        )
    )
    readExpected(content, chain, topic)
    return content


def readExpected(content: bytes, chain: bytes, topic: str) -> Sequence[str]:
    """
    The names of the recipients whose receipts are expected for a topic.

    @raise ProofInvalid: the content does not say so, or for another chain or topic.
    """
    fields = readFields(ExpectedFields, content, "a list of recipients")
    if (fields.chain, fields.topic) != (chain.hex(), topic):
        raise ProofInvalid("the recipients are those of another topic or chain")
    names = fields.recipients
    if len(names) > MAX_EXPECTED or len(names) != len(set(names)):
        raise ProofInvalid(f"recipients are at most {MAX_EXPECTED}, and each comes once")
    for each in names:
        try:
            checkTopicName(RECEIPTS + each, TopicRule.UTF8)
        except BrokerError as error:
            raise ProofInvalid(f"{each!r} cannot be the name of a recipient: {error}") from None
        if not 1 <= len(each) <= 64 or "/" in each:
            raise ProofInvalid(f"{each!r} cannot be the name of a recipient")
    return names


@frozen(kw_only=True)
class RecipientReceipt:
    """
    A receipt that says something that can be true.

    @ivar topic: the topic or pattern that it is about.
    @ivar last: the last event that was received.
    @ivar checkpoint: a block at or after that of the event.
    @ivar means: C{processed} or C{received}.
    @ivar previous: the id of the receipt before it; empty where there is none.
    """

    topic: str
    last: EventId
    checkpoint: Checkpoint
    means: str
    previous: str = ""

    def covers(self, topic: str, eventId: EventId) -> bool:
        """
        Whether it says that an event was received.

        @param topic: the topic of the event.
        """
        if not filterMatches(self.topic, topic):
            return False
        if self.last.prefix == eventId.prefix:
            return eventId.sequence <= self.last.sequence
        # Of two events in one block, their ids do not say which is the first.
        return eventId.height < self.last.height


def isReceipt(content: bytes | None) -> bool:
    """Whether a content says to be a receipt; it need not be a good one."""
    if content is None or len(content) > _MAX_SIZE or not content.lstrip().startswith(b"{"):
        return False
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("format") == RECEIPT


def encodeReceipt(chain: bytes, receipt: RecipientReceipt) -> bytes:
    """The content of a receipt."""
    return msgspec.json.encode(
        ReceiptFields(
            format="svcbroker/receipt/1",
            chain=chain.hex(),
            topic=receipt.topic,
            number=receipt.last.sequence,
            eventId=str(receipt.last),
            checkpoint=str(receipt.checkpoint),
            means="processed" if receipt.means == "processed" else "received",
            previous=receipt.previous or UNSET,
        )
    )


def readReceipt(content: bytes, chain: bytes) -> RecipientReceipt:
    """
    Read the content of a receipt, and check that it can be true.

    @param chain: the id of the chain that it was published to.
    @raise ProofInvalid: it is no receipt, is for another chain, or says what cannot be.
    """
    if not isReceipt(content):
        raise ProofInvalid(f"this is not a receipt: its format is not {RECEIPT}")
    fields = readFields(ReceiptFields, content, "a receipt")
    try:
        checkFilter(fields.topic, TopicRule.UTF8)
        last = EventId.parse(fields.eventId)
        checkpoint = Checkpoint.parse(fields.checkpoint)
        previous = "" if fields.previous is UNSET else str(EventId.parse(fields.previous))
    except (ValueError, BrokerError) as error:
        raise ProofInvalid(f"this is not a receipt: {error}") from None
    if fields.chain != chain.hex():
        raise ProofInvalid("the receipt is for another chain")
    if fields.number != last.sequence:
        raise ProofInvalid("the receipt names a number that is not that of its event")
    if not isPattern(fields.topic) and last.prefix != topicPrefix(fields.topic):
        raise ProofInvalid("the receipt names an event of another topic")
    if last.height > checkpoint.height:
        raise ProofInvalid("the receipt names an event that is not yet there at its checkpoint")
    return RecipientReceipt(
        topic=fields.topic,
        last=last,
        checkpoint=checkpoint,
        means=fields.means,
        previous=previous,
    )


@frozen(kw_only=True)
class AcceptedReceipt:
    """
    A receipt on the log.

    @ivar recipient: the topic that it was published to.
    @ivar author: the public key that has signed it, in hexadecimal digits.
    @ivar eventId: its id.
    @ivar signedAt: when it was signed, by its author's clock, in milliseconds since the epoch.
    """

    recipient: str
    author: str
    eventId: str
    signedAt: int
    receipt: RecipientReceipt


@define(eq=False)
class ReceiptReader:
    """
    Reads the receipts of a chain in the order of the log, and believes those that go on from the
    ones before. One that does not changes nothing.

    @ivar chain: the id of the chain.
    @ivar check: looks whether the log has what a receipt names, and raises L{ProofInvalid} where it
        has not.
    @ivar newest: the newest receipts, by recipient, author and topic.
    """

    chain: bytes
    check: Callable[[RecipientReceipt], None] = lambda receipt: None
    newest: dict[tuple[str, str, str], AcceptedReceipt] = field(factory=dict)

    def take(
        self, topic: str, eventId: str, content: bytes, author: str | None, signedAt: int | None
    ) -> AcceptedReceipt:
        """
        Take the next event of a topic of receipts.

        @param author: who has signed it: the signature was checked.
        @raise ProofInvalid: it is no receipt that can be believed.
        """
        if author is None:
            raise ProofInvalid("nobody has signed the receipt")
        receipt = readReceipt(content, self.chain)
        key = topic, author, receipt.topic
        before = self.newest.get(key)
        checkOrder(receipt, EventId.parse(eventId), None if before is None else before.receipt)
        self.check(receipt)
        accepted = AcceptedReceipt(
            recipient=topic,
            author=author,
            eventId=eventId,
            signedAt=signedAt or 0,
            receipt=receipt,
        )
        self.newest[key] = accepted
        return accepted


def checkOrder(
    receipt: RecipientReceipt, eventId: EventId, before: RecipientReceipt | None = None
) -> None:
    """
    Check that a receipt names what was there when it came, and no less than the one before it.

    @param eventId: its own id.
    @param before: the one before it, of the same author and topic.
    @raise ProofInvalid: it does not.
    """
    if receipt.checkpoint.height >= eventId.height:
        raise ProofInvalid("the receipt names a checkpoint that was not there when it came")
    if receipt.previous and EventId.parse(receipt.previous).height >= eventId.height:
        raise ProofInvalid("the receipt names one before it that is not")
    if before is None:
        return
    old, new = before.last, receipt.last
    isLess = new.sequence < old.sequence if new.prefix == old.prefix else new.height < old.height
    if isLess or receipt.checkpoint.height < before.checkpoint.height:
        raise ProofInvalid(f"the receipt says less than the one before it, which has {old}")


@frozen(kw_only=True)
class ProvedReceipt:
    """
    A proved event that is a receipt.

    @ivar event: the event.
    @ivar receipt: what it says; C{None} where that is not believed.
    @ivar reason: why it is not; empty where it is.
    """

    event: ProvedEvent
    receipt: RecipientReceipt | None
    reason: str = ""

    @classmethod
    def of(cls, event: ProvedEvent) -> ProvedReceipt | None:
        """The receipt that an event is; C{None} where it is none."""
        content = event.content
        if content is None or not isReceipt(content):
            return None
        try:
            if event.author is None:
                raise ProofInvalid("nobody has signed it")
            receipt = readReceipt(content, event.chain)
            checkOrder(receipt, EventId.parse(event.eventId))
            return cls(event=event, receipt=receipt)
        except ProofInvalid as error:
            return cls(event=event, receipt=None, reason=str(error))


def receiptText(proved: ProvedReceipt, named: Callable[[bytes], str]) -> str:
    """
    A receipt in words.

    @param named: a public key in words.
    """
    author, receipt = proved.event.author, proved.receipt
    if author is None or receipt is None:
        return f"{proved.event.eventId} is no receipt that can be believed: {proved.reason}"
    done = "had processed" if receipt.means == "processed" else "had received"
    return (
        f"{named(author.key)} signed at {_timeText(author.signedAt)} that it {done} all events of "
        f"{json.dumps(receipt.topic)} up to number {receipt.last.sequence} ({receipt.last})"
    )


def sideTexts(
    events: Sequence[ProvedEvent], named: Callable[[bytes], str] = lambda key: f"key {key.hex()}"
) -> Sequence[str]:
    """
    Both sides of proved events: the author of each, and the recipients who have signed for it.

    @param named: a public key in words.
    @return: a sentence for each event that is no receipt, with those of its receipts, and one on
        silence; nothing where there are no receipts.
    """
    receipts = [found for found in map(ProvedReceipt.of, events) if found is not None]
    expected = _expectedOf(events)
    if not receipts and not expected:
        return ()
    told = {each.event.eventId for each in receipts}
    told |= {each.eventId for each, _ in expected.values()}
    texts = [receiptText(each, named) for each in receipts if each.receipt is None]
    for event in events:
        if event.eventId in told:
            continue
        eventId = EventId.parse(event.eventId)
        signed = [
            each
            for each in receipts
            if each.receipt is not None
            and each.event.chain == event.chain
            and each.receipt.covers(event.topic, eventId)
        ]
        covering = [receiptText(each, named) for each in signed]
        if event.topic in expected:
            _, names = expected[event.topic]
            silent = {RECEIPTS + each for each in names} - {each.event.topic for each in signed}
            covering += [f"{each} has signed nothing that is here" for each in sorted(silent)]
        if event.author is None:
            said = f"said by nobody who has signed it, in block {event.block.height}"
        else:
            said = f"said by {named(event.author.key)} at {_timeText(event.author.signedAt)}"
        texts.append(
            f"{event.eventId}: {said}, number {event.sequence} of {json.dumps(event.topic)}; "
            + ("; ".join(covering) or "nobody has signed a receipt for it here")
        )
    return (*texts, SILENCE)


def _expectedOf(
    events: Sequence[ProvedEvent],
) -> dict[str, tuple[ProvedEvent, Sequence[str]]]:
    """The recipients that are expected for topics, with the newest events that say so."""
    found: dict[str, tuple[ProvedEvent, Sequence[str]]] = {}
    for each in sorted(events, key=lambda event: event.block.height):
        if each.topic.startswith(EXPECTED) and each.content is not None:
            topic = each.topic.removeprefix(EXPECTED)
            try:
                found[topic] = each, readExpected(each.content, each.chain, topic)
            except ProofInvalid:
                continue  # it is shown as any other event
    return found


def _timeText(milliseconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(milliseconds // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} milliseconds after 1970"
