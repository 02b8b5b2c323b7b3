"""
C{svcbroker receipt} and C{svcbroker receipts}: receipts that recipients sign, and who has signed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from attrs import frozen

from ..errors import TopicNotFound
from .arguments import EVENT, PATH, ParsedType, jsonOption, options
from .clientcommand import clientCommand
from .terminal import Console, Exit, counted, quoted, showTable, timeText

if TYPE_CHECKING:
    from ..client import Client, Receipts
    from ..proofs import AcceptedReceipt, RecipientReceipt

_EVERY: Final = re.compile(r"([1-9][0-9]{0,8})(s|m|h)?")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_WITHIN: Final = 10.0
_COUNT: Final = 100


def _every(text: str) -> tuple[int, float]:
    found = _EVERY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is neither a number of events nor a time such as 10s")
    if found[2] is None:
        return int(found[1]), float("inf")
    return 2**63, float(int(found[1]) * _SECONDS[found[2]])


RECEIPTS_TOPIC: Final = click.option(
    "--receipts-topic",
    "receiptsTopic",
    metavar="TOPIC",
    default="",
    help="The topic of the receipts. [default: receipts/ and the beginning of the public key]",
)
MEANS: Final = click.option(
    "--receipt",
    "means",
    type=click.Choice(["processed", "received"]),
    default="processed",
    show_default=True,
    help="Whether a receipt says that events were shown, or that they have arrived.",
)
RECEIPT_OPTIONS: Final = (
    click.option(
        "--receipts",
        "keyFile",
        type=PATH,
        metavar="KEY",
        help="Sign receipts for what is shown, with the private key in this PEM file. It begins "
        "after the last event that has one.",
    ),
    click.option(
        "--every",
        type=ParsedType("number or time", _every),
        metavar="NUMBER|TIME",
        help="Sign a receipt for so many events, or so often: 100, 10s. [default: both of these]",
    ),
    MEANS,
    RECEIPTS_TOPIC,
)


def makeReceipts(
    keyFile: Path, topic: str, means: str, every: tuple[int, float] | None = None
) -> Receipts:
    """
    Tell a client how to sign receipts.

    @raise CommandError: the key cannot be used.
    """
    from ..client import Receipts
    from .inputs import readAuthorKey

    count, seconds = (_COUNT, _WITHIN) if every is None else every
    return Receipts(
        key=readAuthorKey(keyFile),
        topic=topic,
        every=count,
        seconds=seconds,
        isProcessed=means == "processed",
    )


@clientCommand(
    """\
    Sign a receipt: all events of a topic up to one were received.

    PATTERN is a topic, or a pattern as MQTT has them. All of its events that you may read, up to
    EVENT, were received. The receipt is an event of its own, which the broker cannot make.
    """
)
@options(
    click.argument("pattern"),
    click.argument("event", type=EVENT),
    click.option(
        "--key",
        "keyFile",
        type=PATH,
        required=True,
        metavar="FILE",
        help="The file with the recipient's private key.",
    ),
    MEANS,
    RECEIPTS_TOPIC,
    jsonOption(),
)
def receiptCommand(
    console: Console,
    client: Client,
    pattern: str,
    event: str,
    keyFile: Path,
    means: str,
    receiptsTopic: str,
    asJson: bool,
) -> None:
    """Publish a receipt."""
    receipts = makeReceipts(keyFile, receiptsTopic, means)
    published = client.receipt(pattern, event, receipts)
    if asJson:
        console.sayJson({"eventId": None if published is None else published.eventId})
    elif published is None:
        console.say("an earlier receipt says as much")
    else:
        console.say(f"receipt {published.eventId} in {quoted(published.topic)}")


@frozen(kw_only=True)
class ReceiptState:
    """
    The newest receipt of a recipient for a topic.

    @ivar newest: the receipt.
    @ivar since: the time of its block, in milliseconds since the epoch.
    @ivar number: the number of the last event of the topic that it is for.
    @ivar behind: how many events of the topic came after that one.
    """

    newest: AcceptedReceipt
    since: int
    number: int
    behind: int

    @property
    def record(self) -> dict[str, Any]:
        """Its fields, for programs."""
        receipt = self.newest.receipt
        return {
            "recipient": self.newest.recipient,
            "author": self.newest.author,
            "topic": receipt.topic,
            "number": self.number,
            "means": receipt.means,
            "eventId": self.newest.eventId,
            "checkpoint": str(receipt.checkpoint),
            "signedAt": self.newest.signedAt,
            "timestamp": self.since,
            "behind": self.behind,
        }

    @property
    def cells(self) -> Sequence[str]:
        """Its fields, for people."""
        newest = self.newest
        return (
            quoted(newest.recipient),
            newest.author[:16],
            f"{newest.receipt.means} up to {self.number}",
            timeText(newest.signedAt),
            f"{counted(self.behind, 'event')} behind" if self.behind else "all",
        )


class TopicReceipts:
    """
    The receipts for one topic, read from the log.
    """

    def __init__(self, client: Client, topic: str, refuse: Callable[[str], object]) -> None:
        """
        @param refuse: is told of receipts that are not believed, in a line.
        """
        self._client = client
        self._topic = topic
        self._refuse = refuse
        self._checkpoints: dict[int, str] = {}

    def find(self, pattern: str) -> Iterator[ReceiptState]:
        """
        Read receipts.

        @param pattern: the topics that they are published to.
        """
        from ..model import filterMatches
        from ..proofs import ProofInvalid, ReceiptReader

        newest: dict[tuple[str, str, str], tuple[AcceptedReceipt, int]] = {}
        count = self._client.state(self._topic).sequenceNumber
        reader = ReceiptReader(
            bytes.fromhex(self._client.checkpoint().chain),
            lambda receipt: self._check(receipt, count),
        )
        for event in self._client.events(pattern):
            try:
                found = reader.take(
                    event.topic, event.eventId, event.content, event.author, event.signedAt
                )
            except ProofInvalid as error:
                self._refuse(f"{event.eventId} in {quoted(event.topic)} is not believed: {error}")
                continue
            if filterMatches(found.receipt.topic, self._topic):
                key = found.recipient, found.author, found.receipt.topic
                newest[key] = found, event.timestamp or 0
        for found, since in newest.values():
            number = self._numberOf(found, count)
            yield ReceiptState(newest=found, since=since, number=number, behind=count - number)

    def _check(self, receipt: RecipientReceipt, count: int) -> None:
        """
        Check what a receipt says against the log.

        @raise ProofInvalid: it cannot be true.
        """
        from ..model import filterMatches
        from ..proofs import ProofInvalid

        if not filterMatches(receipt.topic, self._topic):
            return
        if receipt.topic == self._topic and receipt.last.sequence > count:
            raise ProofInvalid("the receipt names a number that is not there yet")
        height = receipt.checkpoint.height
        if height not in self._checkpoints:
            record = self._client.checkpoint(height)
            self._checkpoints[height] = record.checkpoint if record.height == height else ""
        if self._checkpoints[height] not in ("", str(receipt.checkpoint)):
            raise ProofInvalid("the receipt names a block that this chain does not have")

    def _numberOf(self, found: AcceptedReceipt, count: int) -> int:
        receipt = found.receipt
        if receipt.topic == self._topic:
            return receipt.last.sequence
        for event in self._client.events(self._topic, after=str(receipt.last), limit=1):
            return event.sequence - 1
        return count


def _expected(client: Client, topic: str, refuse: Callable[[str], object]) -> set[str]:
    """The topics of the receipts that are expected for a topic."""
    from ..proofs import EXPECTED, RECEIPTS, ProofInvalid, readExpected

    chain = bytes.fromhex(client.checkpoint().chain)
    try:
        for event in client.events(EXPECTED + topic, after="OFFSET_LAST", reverse=True):
            try:
                names = readExpected(event.content, chain, topic)
                return {RECEIPTS + each for each in names}
            except ProofInvalid as error:
                refuse(f"{event.eventId} in {quoted(event.topic)} is not believed: {error}")
    except TopicNotFound:
        pass  # none are expected
    return set()


@clientCommand(
    """\
    Show who has signed receipts for a topic, up to which event, and how far behind they are.

    Receipts that cannot be true are told and not believed: of another chain, of a number that is
    not there yet, that say less than those before them. Silence proves nothing: who has signed no
    receipt may have received all the same.
    """
)
@options(
    click.argument("topic"),
    click.option(
        "--in",
        "pattern",
        metavar="PATTERN",
        default="receipts/#",
        show_default=True,
        help="The topics of the receipts.",
    ),
    jsonOption("Show each recipient as a line of JSON."),
)
def receiptsCommand(
    console: Console, client: Client, topic: str, pattern: str, asJson: bool
) -> int:
    """Read receipts, and show the newest of each recipient."""
    from ..proofs import SILENCE

    refused: list[str] = []
    found = [*TopicReceipts(client, topic, refused.append).find(pattern)]
    silent = _expected(client, topic, refused.append) - {each.newest.recipient for each in found}
    for line in refused:
        console.warn(line)
    if asJson:
        for each in found:
            console.sayJson(each.record)
        for name in sorted(silent):
            console.sayJson({"recipient": name, "topic": topic, "number": 0})
    elif found or silent:
        columns = ("recipient", "key", "receipt", "signed", "behind")
        cells = [each.cells for each in found]
        cells += [(quoted(name), "", "is expected", "nothing", "") for name in sorted(silent)]
        lines = [", ".join(filter(None, each)) for each in cells]
        showTable(console, columns, cells, lines)
    else:
        console.say("no receipts")
    if not asJson:
        console.warn(SILENCE)
    return Exit.BAD if refused else Exit.GOOD
