"""
A bundle of the events of a small chain, which witnesses have seen.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from attrs import evolve
from msgspec.json import encode

from svcbroker.model import EventId, topicPrefix
from svcbroker.proofs import (
    AgeFile,
    AgeIdentity,
    Checkpoint,
    RecipientReceipt,
    encodeExpected,
    encodeReceipt,
    padded,
)
from svcbroker.proofs.bundle import Bundle, ErasureNote
from svcbroker.proofs.tlog import LogKey, LogProof, WitnessKey
from tools.vectors.closed import OURS, SECRET, close
from tools.vectors.signedchain import SignedChain

from ..tlog.support import MemoryLog, mlDsaKey

WITNESSES = {name: WitnessKey(f"{name}.example/w", name.encode() * 32) for name in "abc"}
EXECUTING = WitnessKey("x.example/executed", b"x" * 32)
TIME = 1_790_000_000
CONTENTS = (b'{"amount": 12}', "größer\r\n</script><b>\U0001f600".encode(), bytes(range(256)), b"")


ERASED = ErasureNote(
    timestamp=TIME * 1000,
    account="olga",
    reason="request 17\nof a @WHAT@ customer",
    transHash=f"0x{'5' * 64}",
)


def policyOf(key: LogKey) -> bytes:
    """A policy of our log and witnesses, of which two are needed."""
    lines = [f"log {key.verifier.text}"]
    lines += [f"witness {name} {each.verifier.text}" for name, each in WITNESSES.items()]
    return "\n".join([*lines, "group all 2 a b c", "quorum all", ""]).encode()


@cache
def bundle() -> Bundle:
    """Four events, of which a and b have seen the block."""
    return bundleOf(*CONTENTS)


def bundleOf(*contents: bytes) -> Bundle:
    """The same of other events."""
    with tempfile.TemporaryDirectory() as directory:
        chain = SignedChain(Path(directory))
        try:
            return _made(chain, contents)
        finally:
            chain.close()


def executedBundle() -> Bundle:
    """The same, and a third witness has executed the block."""
    made = bundle()
    proofs = {}
    for name, data in made.proofs.items():
        proof = LogProof.decode(data)
        cosignature = EXECUTING.cosign(proof.checkpoint.text, TIME + 9)
        checkpoint = proof.checkpoint.signedBy(cosignature)
        proofs[name] = evolve(proof, checkpoint=checkpoint).encode()
    line = f"witness x {EXECUTING.verifier.text}\n".encode()
    return evolve(made, proofs=proofs, policy=line + made.policy)


def mlDsaBundle() -> Bundle:
    """The same, and a has cosigned with ML-DSA, too, which the policy knows as q."""
    made, key = bundle(), mlDsaKey("a.example")
    proofs = {}
    for name, data in made.proofs.items():
        proof = LogProof.decode(data)
        checkpoint = proof.checkpoint.signedBy(key.cosign(proof.checkpoint.text, TIME))
        proofs[name] = evolve(proof, checkpoint=checkpoint).encode()
    line = f"witness q {key.verifier.text}\n".encode()
    return evolve(made, proofs=proofs, policy=line + made.policy)


def signedBundle(*, erased: bool = False, witnessed: bool = True) -> Bundle:
    """
    An event that its author has signed, and one without author.

    @param erased: whether the signed one was erased.
    @param witnessed: whether witnesses have seen them, as the policy then needs.
    """
    with tempfile.TemporaryDirectory() as directory:
        chain = SignedChain(Path(directory))
        try:
            chain.open("contracts/x")
            sent = [
                chain.say("contracts/x", b"signed words", author="ada"),
                chain.say("contracts/x", b"words"),
            ]
            height = chain.decide(sent, erased=[0] if erased else ()).height
            ids = [EventId(topicPrefix("contracts/x"), number, height) for number in (1, 2)]
            made = _bundled(chain, ids, witnessed=witnessed)
        finally:
            chain.close()
    return evolve(made, erasures={str(ids[0]): ERASED}) if erased else made


def receiptBundle() -> Bundle:
    """
    Two events of a topic, the receipt of bob for the first one, one of eve for another chain, and
    who is expected: bob and cat.
    """
    with tempfile.TemporaryDirectory() as directory:
        chain = SignedChain(Path(directory))
        try:
            topics = ("receipts/bob", "receipts/eve", "recipients/contracts/x")
            chain.open("contracts/x", *topics)
            sent = [
                chain.say("contracts/x", b"signed words", author="ada"),
                chain.say("contracts/x", b"words"),
            ]
            head = chain.decide(sent)
            ids = [EventId(topicPrefix("contracts/x"), number, head.height) for number in (1, 2)]
            receipt = RecipientReceipt(
                topic="contracts/+",
                last=ids[0],
                checkpoint=Checkpoint.of(head),
                means="processed",
            )
            good = encodeReceipt(chain.genesis.chain, receipt)
            sent = [
                chain.say("receipts/bob", good, author="bob"),
                chain.say("receipts/eve", encodeReceipt(bytes(32), receipt), author="eve"),
                chain.say(
                    topics[2], encodeExpected(chain.genesis.chain, "contracts/x", ["cat", "bob"])
                ),
            ]
            height = chain.decide(sent).height
            ids += [EventId(topicPrefix(each), 1, height) for each in topics]
            return _bundled(chain, ids)
        finally:
            chain.close()


def closedBundle(*, revealed: bool = True) -> Bundle:
    """
    Two closed events and an open one.

    @param revealed: whether the first one is.
    """
    mine = AgeIdentity.parse(SECRET)
    contents = [
        close(each, padded(each.encode()), [mine.public]) for each in ("price 7", "price 8")
    ]
    with tempfile.TemporaryDirectory() as directory:
        chain = SignedChain(Path(directory))
        try:
            chain.open("contracts/x")
            sent = [
                *(chain.say("contracts/x", each, extensions=OURS) for each in contents),
                chain.say("contracts/x", b"words"),
            ]
            height = chain.decide(sent).height
            ids = [EventId(topicPrefix("contracts/x"), number, height) for number in (1, 2, 3)]
            made = _bundled(chain, ids)
        finally:
            chain.close()
    key = AgeFile.parse(contents[0]).fileKey([mine]).hex()
    return evolve(made, reveals={str(ids[0]): key}) if revealed else made


def _made(chain: SignedChain, contents: Sequence[bytes]) -> Bundle:
    chain.open("contracts/x", "y")
    ids = [chain.publish("contracts/x", content)[0] for content in contents]
    return _bundled(chain, ids)


def _bundled(chain: SignedChain, ids: Sequence[EventId], *, witnessed: bool = True) -> Bundle:
    for _ in range(5):
        chain.decide()
    size = chain.head.height + 1
    log = MemoryLog(0, "broker.example/log/1")
    hashes = [chain.genesis.header().hash]
    log.use(hashes + [chain.prover.checkpoint(height).hash for height in range(1, size)])
    seen = [(WITNESSES["b"], TIME), (WITNESSES["a"], TIME + 5)] if witnessed else []
    proofs = {}
    for each in ids:
        extra = encode(chain.prover.event(each, trusted=each.height))
        proofs[str(each)] = evolve(log.proof(each.height, size, *seen), extra=extra).encode()
    policy = policyOf(log.key)
    if not witnessed:
        policy = f"log {log.key.verifier.text}\nquorum none\n".encode()
    return Bundle(proofs=proofs, policy=policy)
