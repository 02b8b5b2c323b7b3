"""
Proofs as text: formats the facts that a proof shows, in words for people and in fields for
programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import to_builtins

from ..proofs import (
    SILENCE,
    AuthorFields,
    ProvedEvent,
    ProvedGrowth,
    ProvedReceipt,
    ProvedTopic,
    WitnessedEvent,
    WitnessedTopic,
    contentFields,
    receiptText,
    sideTexts,
)
from ..proofs.tlog import Witnessed
from .terminal import contentText, counted, printable, quoted, timeText

if TYPE_CHECKING:
    from ..proofs.bundle import ErasureNote


def witnessedFields(witnessed: Witnessed) -> Mapping[str, Any]:
    """Cosignatures of a checkpoint, for programs. Times are in milliseconds."""
    head = witnessed.head
    return {
        "log": {"origin": head.origin, "size": head.size, "root": head.root.hex()},
        "witnesses": [
            {"name": each.witness, "notLaterThan": each.until * 1000}
            for each in witnessed.cosignatures
        ],
        "executedBy": list(witnessed.executedBy),
        "quorumWarning": witnessed.policy.warning,
    }


def witnessedLines(witnessed: Witnessed) -> Iterator[tuple[str, str]]:
    """Cosignatures of a checkpoint, for people: names of lines, and their texts."""
    head, count = witnessed.head, len(witnessed.cosignatures)
    yield "log", quoted(head.origin)
    yield "", f"checkpoint of size {head.size}, root {head.root.hex()}"
    if count:
        yield "", f"cosigned by {count} of the policy's witnesses"
    else:
        yield "", "no witness has cosigned it: this rests on the log's own key alone"
    for each in witnessed.cosignatures:
        seen = timeText(each.until * 1000)
        yield "seen by", f"{quoted(each.witness)} not later than {seen}"
    if count:
        yield from _executedLines(witnessed)
    if witnessed.policy.warning:
        yield "quorum", printable(witnessed.policy.warning)


def _executedLines(witnessed: Witnessed) -> Iterator[tuple[str, str]]:
    """The witnesses that have executed the cosigned chain."""
    executed, asked = witnessed.executedBy, witnessed.policy.executing
    if executed:
        yield "executed by", f"{len(executed)} of {len(asked)}: {', '.join(map(quoted, executed))}"
        return
    yield "executed by", f"nobody: {PLAIN}"


PLAIN: Final = "these witnesses have seen that the log grows, and none of them has executed it"
"""The sentence about witnesses that see hashes only."""


Names: TypeAlias = Mapping[bytes, str]
"""The names of authors, by their public keys."""

_SIGNED = "PROVED: a quorum of this chain's validators has signed it."
_UNSIGNED = (
    "PROVED: it is in the trusted checkpoint's block or history. No validator's signature is here."
)

_LOGGED = "PROVED: it is in a log that the policy accepts."
_LOGGED_TOPIC = "PROVED: its block is in a log that the policy accepts."
_LOGGED_BARE = "PROVED: it is in a log that the policy accepts. What it said is not proved."


def eventFields(proved: ProvedEvent, names: Names | None = None) -> Mapping[str, Any]:
    """
    The facts about an event that a proof shows, for programs.

    @param names: of authors, by their public keys.
    """
    return {
        "eventId": proved.eventId,
        "topic": proved.topic,
        **({} if proved.content is None else contentFields(proved.content)),
        **_openedFields(proved),
        "extensions": dict(proved.extensions),
        **_authorFields(proved, names),
        "sequence": proved.sequence,
        "idempotencyKey": proved.idempotencyKey,
        "expectedSequence": proved.expectedSequence,
        "submitted": proved.submitted,
        "timestamp": proved.timestamp,
        "group": proved.group,
        "chain": proved.chain.hex(),
        "block": str(proved.block),
        **_signedFields(proved),
        "checkpoint": None if proved.checkpoint is None else str(proved.checkpoint),
    }


def _openedFields(proved: ProvedEvent) -> Mapping[str, Any]:
    if not proved.isClosed:
        return {}
    if isinstance(proved.opened, bytes):
        return {"closed": None, "opened": contentFields(proved.opened)}
    return {"closed": str(proved.opened or "no identity is given")}


def _authorFields(proved: ProvedEvent, names: Names | None) -> Mapping[str, Any]:
    author = proved.author
    if author is None:
        return {"author": None}
    named = {} if names is None else {"authorName": names.get(author.key)}
    return {
        "author": author.key.hex(),
        **named,
        "signedAt": author.signedAt,
        "signature": author.signature.hex() or None,
        **({} if author.statement == 1 else {"statement": author.statement}),
    }


def _signedFields(proved: ProvedEvent | ProvedTopic) -> Mapping[str, Any]:
    return {
        "signed": None if proved.signed is None else str(proved.signed),
        "ledger": proved.ledger,
        "signers": [
            {"node": index, "publicKey": key.hex()} for index, key in proved.signers.items()
        ],
        "nodes": proved.nodes,
        "changes": proved.changes,
    }


def eventLines(
    proved: ProvedEvent, names: Names | None = None, erasure: ErasureNote | None = None
) -> Iterator[str]:
    """
    The facts about an event that a proof shows, for people.

    @param names: of authors, by their public keys.
    @param erasure: what the broker has said of its erasure.
    """
    yield _UNSIGNED if proved.signed is None else _SIGNED
    yield factLine("event", f"{proved.eventId}, the topic's event number {proved.sequence}")
    yield factLine("topic", quoted(proved.topic))
    if erasure is None or proved.content is not None:
        yield factLine("content", _contentOf(proved))
        if isinstance(proved.opened, bytes):
            yield factLine("opened", contentText(proved.opened))
        elif proved.opened is not None:
            yield factLine("", f"{proved.opened}")
    else:
        yield from _erasureLines(erasure)
    for name, value in sorted(proved.extensions.items()):
        yield factLine("extension", f"{quoted(name)}: {quoted(value)}")
    yield from _authorLines(proved, names)
    yield from _receiptLines(proved, names)
    if proved.idempotencyKey is not None:
        yield factLine("idempotency", f"key {proved.idempotencyKey}")
    yield factLine("submitted", f"{timeText(proved.submitted)} by the broker's clock")
    yield factLine("block", f"{proved.block}")
    by = "" if proved.signed is None else ", a time that its validators accepted"
    yield factLine("", f"of {timeText(proved.timestamp)}{by}")
    if proved.timestamp < proved.submitted:
        # BFT time: the median of the votes for the block before.
        yield factLine("", "before it was submitted: CometBFT dates a block by the one before it")
    if proved.checkpoint is not None:
        yield factLine("", f"in the history of block {proved.checkpoint}")
    yield from _signedLines(proved)


def _receiptLines(proved: ProvedEvent, names: Names | None) -> Iterator[str]:
    """The receipt that an event is."""
    found = ProvedReceipt.of(proved)
    if found is not None:
        yield factLine("receipt", receiptText(found, lambda key: _named(key, names)))
        yield factLine("", SILENCE)


def sideLines(events: Sequence[ProvedEvent], names: Names | None) -> Iterator[str]:
    """
    Format both sides of proved events, where receipts are among them.

    @param names: of authors, by their public keys.
    """
    return iter(sideTexts(events, lambda key: _named(key, names)))


def _contentOf(proved: ProvedEvent) -> str:
    if proved.content is None:
        return "erased, or left out of this proof"
    if proved.isClosed:
        return f"closed, {len(proved.content)} bytes, SHA-256 {sha256(proved.content).hexdigest()}"
    return contentText(proved.content)


def _erasureLines(erasure: ErasureNote) -> Iterator[str]:
    account = (
        f"the account {quoted(erasure.account)}" if erasure.account else "a user of the machine"
    )
    yield factLine("content", f"erased at {timeText(erasure.timestamp)} by {account}")
    yield factLine("", f"for the reason: {quoted(erasure.reason)}")
    yield factLine("", "when, by whom and why is what the broker said, and not proved")


def _authorLines(proved: ProvedEvent, names: Names | None) -> Iterator[str]:
    author = proved.author
    if author is None:
        yield factLine("author", "unsigned: no author has signed this event")
        return
    yield factLine("author", _named(author.key, names))
    when = f"at {timeText(author.signedAt)} by the author's clock"
    if author.signature:
        yield factLine("", f"the signature of this key holds; signed {when}")
    else:
        yield factLine("", f"signed {when}")
        checked = "nothing here shows that it held"
        if proved.signed is not None:
            checked = "the validators had checked it"
        yield factLine("", f"its signature was removed with the content; {checked}")
    yield factLine("", _expectedText(proved.expectedSequence, author.statement))


def _expectedText(expected: int | None, version: int) -> str:
    """Format the number of the topic before the event, as the author has signed it."""
    if version == 1:
        if expected is None:
            return "statement version 1: the sender may have left an expected number out"
        return f"statement version 1: the expected number {expected} is the sender's, not signed"
    if expected is None:
        return "statement version 2: signed with no expected number"
    return f"statement version 2: signed with the expected number {expected}"


def _named(key: bytes, names: Names | None) -> str:
    """A public key, and its name where names are known."""
    if names is None:
        return f"key {key.hex()}"
    name = names.get(key)
    return f"key {key.hex()}, " + ("which has no name here" if name is None else quoted(name))


def _signedLines(proved: ProvedEvent | ProvedTopic) -> Iterator[str]:
    """The chain, and the validators that signed."""
    yield factLine("chain", f"{proved.chain.hex()}, group {quoted(proved.group)}")
    if proved.signed is None:
        return
    which = "" if proved.signed == proved.block else f", block {proved.signed}"
    yield factLine("signed by", f"{len(proved.signers)} of {proved.nodes} validators{which}")
    for index, key in proved.signers.items():
        yield factLine("", f"validator {index}, key {key.hex()}")
    if proved.changes:
        times = "once" if proved.changes == 1 else f"{proved.changes} times"
        yield factLine("", f"the set had changed {times}; the validators before signed each change")


def topicFields(
    proved: ProvedTopic, events: Sequence[ProvedEvent] | None = None
) -> Mapping[str, Any]:
    """The facts about a topic that a proof shows, for programs."""
    authors = {}
    if proved.authors is not None:
        authors = {"authors": to_builtins(AuthorFields.of(proved.authors))}
    complete = {} if events is None else {"complete": [event.eventId for event in events]}
    return {
        "topic": proved.topic,
        "isOpen": proved.isOpen,
        "count": proved.count,
        "latest": proved.latest,
        **authors,
        **complete,
        "timestamp": proved.timestamp,
        "group": proved.group,
        "chain": proved.chain.hex(),
        "block": str(proved.block),
        **_signedFields(proved),
    }


def topicLines(
    proved: ProvedTopic,
    events: Sequence[ProvedEvent] | None = None,
    names: Names | None = None,
) -> Iterator[str]:
    """
    The facts about a topic that a proof shows, for people.

    @param names: of authors, by their public keys.
    """
    if events is None:
        yield _SIGNED
    else:
        yield f"PROVED: complete: all {counted(proved.count, 'event')} of the topic."
    yield factLine("topic", f"{quoted(proved.topic)}, {'open' if proved.isOpen else 'closed'}")
    yield factLine("events", f"exactly {proved.count} up to this block")
    if proved.authors is not None:
        for what, keys in (("authors", proved.authors.authors), ("admins", proved.authors.admins)):
            for number, key in enumerate(keys):
                yield factLine("" if number else what, _named(key, names))
    yield factLine("block", str(proved.block))
    yield factLine("", f"of {timeText(proved.timestamp)}, a time that its validators accepted")
    yield from _signedLines(proved)
    for event in events or ():
        opened = event.opened
        content = contentText(opened) if isinstance(opened, bytes) else _contentOf(event)
        yield factLine(f"event {event.sequence}", f"{event.eventId} {content}")


def growthFields(proved: ProvedGrowth) -> Mapping[str, Any]:
    """The fields of a consistency proof, for programs."""
    return {
        "chain": proved.chain.hex(),
        "older": str(proved.older),
        "newer": str(proved.newer),
        "timestamp": proved.timestamp,
    }


def growthLines(proved: ProvedGrowth) -> Iterator[str]:
    """Format a consistency proof as text."""
    yield "PROVED: between these two checkpoints the log has only grown."
    yield factLine("older", str(proved.older))
    yield factLine("newer", str(proved.newer))
    yield factLine("", f"of {timeText(proved.timestamp)}")
    yield factLine("chain", proved.chain.hex())


def witnessedTopicLines(
    found: WitnessedTopic, events: Sequence[ProvedEvent] | None, names: Names | None
) -> Iterator[str]:
    """
    Format the proof of a topic by a transparency log as text.

    @param names: of authors, by their public keys.
    """
    first, *lines = topicLines(found.topic, events, names)
    yield _LOGGED_TOPIC if events is None else first
    yield from lines
    for each in witnessedLines(found.witnessed):
        yield factLine(*each)
    if not found.witnessed.executedBy:
        yield factLine("not proved", "that this number of events follows from the blocks: the")
        yield factLine("", "validators say so, and nobody outside has executed the chain")


def factLine(name: str, text: str) -> str:
    return f"  {name:12} {text}"


def witnessedEventLines(
    found: WitnessedEvent, names: Names | None, erasure: ErasureNote | None = None
) -> Iterator[str]:
    """
    Format the proof of an event by a transparency log as text.

    @param names: of authors, by their public keys.
    @param erasure: what the broker has said of its erasure.
    """
    _, *lines = eventLines(found.event, names, erasure)
    yield _LOGGED if found.event.content is not None else _LOGGED_BARE
    yield from lines
    for each in witnessedLines(found.witnessed):
        yield factLine(*each)
