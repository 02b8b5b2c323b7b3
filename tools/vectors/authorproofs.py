"""
Test vectors of proofs of events of versions 2 and 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import convert, to_builtins
from msgspec.structs import replace

from svcbroker.chain import Transaction, TransactionReceipt, merkleRoot, receiptLeaf
from svcbroker.model import EventId, Execution, topicPrefix
from svcbroker.proofs import EventFields, HeaderFields, PbftCertificate, eventFieldsOf
from svcbroker.proofs._format import transactionOf

from .authoredchain import ADA, BERT, LATER, PRIVATE, AuthoredChain
from .proofchain import Json, changed
from .signedchain import SignedChain, seedOf
from .trustproofs import verified


def authorVectors(directory: Path) -> Json:
    """All of them."""
    directory.mkdir()
    example = AuthoredChain(directory)
    chain = example.chain.genesis.chain.hex()
    try:
        return {
            "genesis": to_builtins(example.chain.prover.genesis()),
            "chain": chain,
            "events": [
                {"name": name, "proof": proof, "verified": verified(proof, chain)}
                for name, proof in good(example)
            ],
            "badEvents": [{"why": why, "proof": proof} for why, proof in bad(example)],
            "topics": [
                {"name": name, "proof": proof, "verified": verified(proof, chain)}
                for name, proof in (
                    ("no authors", topic(example, "a")),
                    ("authors", topic(example)),
                )
            ],
            "badTopics": [{"why": why, "proof": proof} for why, proof in badTopics(example)],
        }
    finally:
        example.chain.close()


def statementVectors(directory: Path) -> Json:
    """Those of a chain of format 4, with statements of version 2."""
    directory.mkdir()
    chain = SignedChain(directory)
    chain.open("a", "b")
    sent: Mapping[str, Callable[[str], Transaction]] = {
        "a number": lambda topic: chain.say(
            topic, b"one", author="ada", expected=0, statementVersion=2
        ),
        "no number": lambda topic: chain.say(topic, b"two", author="bert", statementVersion=2),
        "all": lambda topic: chain.say(
            topic,
            b"three",
            author="ada",
            key=f"{topic}!",
            expected=2,
            extensions=PRIVATE,
            statementVersion=2,
        ),
        "a statement of version 1": lambda topic: chain.say(
            topic, b"four", author="ada", expected=3, version=3
        ),
        "no author": lambda topic: chain.say(topic, b"five", expected=4, version=3),
    }
    proofs: dict[str, Json] = {}
    for topic, prefix in (("a", ""), ("b", "erased: ")):
        block = [make(topic) for make in sent.values()]
        header = chain.decide(block, erased=range(len(block)) if prefix else ())
        for number, name in enumerate(sent, start=1):
            eventId = EventId(topicPrefix(topic), number, header.height)
            proofs[prefix + name] = to_builtins(chain.prover.event(eventId, None))
    trusted = chain.genesis.chain.hex()
    try:
        return {
            "genesis": to_builtins(chain.prover.genesis()),
            "chain": trusted,
            "events": [
                {"name": name, "proof": proof, "verified": verified(proof, trusted)}
                for name, proof in proofs.items()
            ],
            "badEvents": [{"why": why, "proof": proof} for why, proof in badStatements(proofs)],
        }
    finally:
        chain.close()


def badStatements(proofs: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    """Event proofs of format 4 that do not hold."""
    number, none = proofs["a number"], proofs["no number"]
    yield "the expected number was left out", changed(number, "event", "expectedSequence", to=None)
    yield "another expected number", changed(number, "event", "expectedSequence", to=1)
    yield "an expected number was added", changed(none, "event", "expectedSequence", to=1)
    for other in (1, 3, "2", 2.5, True):
        yield f"statement {other!r}", changed(number, "event", "statement", to=other)
    yield "no version of the statement", changed(number, "event", "statement", to=None)
    first = changed(proofs["a statement of version 1"], "event", "statement", to=2)
    yield "a statement of version 1 as one of version 2", first
    plain = changed(proofs["no author"], "event", "statement", to=2)
    yield "a statement without author", plain
    erased = proofs["erased: a number"]
    yield "an erased statement's version", changed(erased, "event", "statement", to=None)
    for version in (1, 2, 4):
        yield f"event version {version}", changed(number, "event", "version", to=version)
    for format in (2, 3, 5, None):
        yield f"header version {format}", changed(number, "block", "header", "version", to=format)


def proof(example: AuthoredChain, eventId: EventId, checkpoint: int | None = None) -> Json:
    """An event proof as it is written."""
    made: Json = to_builtins(example.chain.prover.event(eventId, checkpoint))
    return made


def topic(example: AuthoredChain, name: str = "signed") -> Json:
    """A topic proof as it is written."""
    prover = example.chain.prover
    made: Json = to_builtins(prover.certified(prover.topic(name, example.chain.state)))
    return made


def good(example: AuthoredChain) -> Iterator[tuple[str, Json]]:
    """Event proofs that hold."""
    for name, eventId in example.ids.items():
        yield name, proof(example, eventId)
    for name, eventId in example.erased.items():
        yield f"erased: {name}", proof(example, eventId)
    yield "with a checkpoint", proof(example, example.ids["signed"], example.tip)
    yield "of version 1, with a checkpoint of format 3", proof(example, example.old, example.tip)
    later = proof(example, example.ids["all"], example.tip)
    block = {"header": later["block"]["header"]}
    yield "without a certificate of the event's block", {**later, "block": block}
    yield "the content is left out", leftOut(proof(example, example.ids["all"]))


def leftOut(whole: Json) -> Json:
    """A proof without the content, which anybody can make of one with it."""
    event = whole["event"]
    public = {
        name: value
        for name, value in event["extensions"].items()
        if not name.startswith("svc-private-")
    }
    left = {
        name: value
        for name, value in event.items()
        if name not in ("content", "contentBase64", "salt", "signature")
    }
    commitment = commitmentOf(whole)
    more = {"hasPrivateExtensions": True} if len(public) < len(event["extensions"]) else {}
    return {**whole, "event": {**left, "extensions": public, "commitment": commitment, **more}}


def bad(example: AuthoredChain) -> Iterator[tuple[str, Json]]:
    """Event proofs that do not hold."""
    whole = proof(example, example.ids["all"])
    plain = proof(example, example.ids["no author"])
    event = whole["event"]
    others = {
        "content": "All",
        "salt": "00" * 32,
        "author": BERT.hex(),
        "signature": proof(example, example.ids["signed"])["event"]["signature"],
        "signedAt": event["signedAt"] + 1,
        "idempotencyKey": "b!",
        "expectedSequence": 7,
        "timestamp": event["timestamp"] + 1,
        "version": 1,
    }
    for name, other in others.items():
        yield f"another {name}", changed(whole, "event", name, to=other)
        yield f"no {name}", changed(whole, "event", name, to=None)
    extensions = event["extensions"]
    without = {name: value for name, value in extensions.items() if name != "svc-private-"}
    yield "a private extension is missing", changed(whole, "event", "extensions", to=without)
    yield (
        "a private extension is another",
        changed(whole, "event", "extensions", "svc-private-name", to="Bert"),
    )
    yield (
        "a private extension is added",
        changed(plain, "event", "extensions", "svc-private-name", to="Ada"),
    )
    yield "a version that is not known", changed(whole, "event", "version", to=3)
    for number in (1, 2, 4):
        name = f"svcbroker/event-proof/{number}"
        yield f"an event with a version in format {number}", {**whole, "format": name}
    old = proof(example, example.old)
    yield "an event without a version in format 3", {**old, "format": whole["format"]}
    yield "the header's version is missing", changed(whole, "block", "header", "version", to=None)
    yield "the header's version is 2", changed(whole, "block", "header", "version", to=2)
    yield "the header's version is 4", changed(whole, "block", "header", "version", to=4)
    yield "an old header with version 3", changed(old, "block", "header", "version", to=3)
    yield "an owner beside an author", changed(whole, "event", "owner", to=event["sender"])
    yield "an owner without a key", changed(plain, "event", "owner", to=event["sender"])
    yield "an author without a signature", changed(plain, "event", "author", to=ADA.hex())
    yield "a signature without an author", changed(plain, "event", "signature", to="00" * 64)
    keyed = proof(example, example.ids["key"])
    yield "a key of another owner", changed(keyed, "event", "owner", to=event["sender"])
    yield "a key without an owner", changed(keyed, "event", "owner", to=None)
    yield (
        "private extensions beside the content",
        changed(whole, "event", "hasPrivateExtensions", to=True),
    )
    yield (
        "a commitment beside the content",
        changed(whole, "event", "commitment", to=commitmentOf(whole)),
    )
    yield from badErased(example)
    yield "validators executed a forged signature", forged(example)


def badErased(example: AuthoredChain) -> Iterator[tuple[str, Json]]:
    """Proofs of erased events that do not hold."""
    gone = proof(example, example.erased["all"])
    yield "erased: another commitment", changed(gone, "event", "commitment", to="00" * 32)
    yield (
        "erased: an author added",
        changed(proof(example, example.erased["private"]), "event", "author", to=ADA.hex()),
    )
    for name, value in (
        ("content", "all"),
        ("contentBase64", "YWxs"),
        ("salt", "00" * 32),
        ("signature", "00" * 64),
    ):
        yield f"erased: a {name}", changed(gone, "event", name, to=value)
    yield "erased: another author", changed(gone, "event", "author", to=BERT.hex())
    yield "erased: no author", changed(gone, "event", "author", to=None)
    yield (
        "erased: private extensions are not mentioned",
        changed(gone, "event", "hasPrivateExtensions", to=None),
    )
    yield "erased: no private extensions", changed(gone, "event", "hasPrivateExtensions", to=False)
    yield (
        "erased: a private extension",
        changed(gone, "event", "extensions", "svc-private-name", to="Mallory"),
    )
    old = proof(example, example.erased["of version 1"])
    yield "erased, of version 1: another version", changed(old, "event", "version", to=2)
    yield "erased, of version 1: in format 1", {**old, "format": "svcbroker/event-proof/1"}
    yield (
        "erased, of version 1: private extensions",
        changed(old, "event", "hasPrivateExtensions", to=True),
    )


def commitmentOf(whole: Json) -> str:
    """The commitment to the content in the head of an event's transaction."""
    event = convert(whole["event"], EventFields)
    return transactionOf(event).head[38:70].hex()


def forged(example: AuthoredChain) -> Json:
    """
    A proof of an event whose signature does not hold, in a block that a quorum has signed: the
    validators did not follow the rules.
    """
    chain, eventId = example.chain, example.ids["after a change of nodes"]
    made = proof(example, eventId)
    signed = chain.say("a", b"signed", author="ada")
    transaction = Transaction.publish(
        signed.sender,
        signed.nonce,
        signed.timestamp,
        "a",
        b"forged",
        None,
        bytes(32),
        signed.claims,
    )
    leaf = transaction.hash
    receipt = receiptLeaf(leaf, TransactionReceipt(Execution.DONE, eventId.sequence))
    header = replace(
        chain.prover.event(eventId).block.header.header(),
        transactionRoot=merkleRoot([leaf]),
        receiptRoot=merkleRoot([receipt]),
    )
    chain._seeds = [seedOf(name) for name in LATER]
    return {
        **made,
        "event": to_builtins(eventFieldsOf(eventId, transaction)),
        "block": {
            "header": to_builtins(HeaderFields.of(header)),
            "certificate": to_builtins(PbftCertificate.of(chain.certify(header))),
        },
    }


def badTopics(example: AuthoredChain) -> Iterator[tuple[str, Json]]:
    """Topic proofs that do not hold."""
    made = topic(example)
    authors = made["topic"]["authors"]
    yield "no authors", changed(made, "topic", "authors", to=None)
    yield "authors that are null", {**made, "topic": {**made["topic"], "authors": None}}
    yield "an author is missing", changed(made, "topic", "authors", "authors", 0, to=None)
    yield (
        "authors in another order",
        changed(made, "topic", "authors", "authors", to=authors["authors"][::-1]),
    )
    yield "another generation", changed(made, "topic", "authors", "generation", to=1)
    yield "no admins", changed(made, "topic", "authors", "admins", to=[])
    yield "the header's version is missing", changed(made, "block", "header", "version", to=None)
    yield (
        "authors of a topic that has none",
        changed(topic(example, "a"), "topic", "authors", to=authors),
    )
