"""
What proofs cost: C{python -m benchmarks.proofs [BLOCKS ...]}.

Proofs of events in blocks of a thousand and of ten thousand, of a kilobyte each, as a broker makes
them (format 3); of one that an author has signed, with an idempotency key; of one of ten thousand
topics; and paths in histories of many blocks, by default of a hundred thousand and a million, which
are made of headers alone. No daemon runs: the reactor thread of one would be busy for the times
shown.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time

from attrs import evolve
from msgspec.json import encode
from rich.progress import track

from svcbroker.archive import Prover
from svcbroker.chain import History, Kind, _validators
from svcbroker.model import EventId, topicPrefix
from svcbroker.proofs import verifyConsistency, verifyProof, verifyTopic
from tools.vectors.signedchain import SignedChain

ROUNDS = 20
EVENT = b"x" * 1000


def timed(call: Callable[[int], object], rounds: int = ROUNDS) -> str:
    """The median and the longest of the processor times of some calls, in milliseconds."""
    times = []
    for number in range(rounds):
        begin = process_time()
        call(number)
        times.append(1000 * (process_time() - begin))
    return f"{sorted(times)[rounds // 2]:7.2f} ms, at most {max(times):7.2f} ms"


def verifyAnew(data: bytes, chain: bytes) -> None:
    """Check a proof, as a program does that has not seen its votes before."""
    _validators._isVote.cache_clear()
    verifyProof(data, chain=chain)


def measureBlock(directory: Path, count: int) -> None:
    """Proofs of events in a block of so many."""
    directory.mkdir()
    chain = SignedChain(directory)
    chain.decide([chain.make(Kind.OPEN, "t")])
    head = chain.decide([chain.say("t", EVENT) for _ in range(count)])
    prefix = topicPrefix("t")
    ids = [EventId(prefix, number, head.height) for number in range(1, count + 1)]
    chance = random.Random(1)
    fresh = [Prover(chain.genesis, chain.store) for _ in range(ROUNDS)]
    data = encode(chain.prover.event(ids[0]))
    print(f"{count} events in a block, {len(data)} bytes of proof")
    print("  the first proof   ", timed(lambda number: fresh[number].event(chance.choice(ids))))
    print("  each after it     ", timed(lambda _: chain.prover.event(chance.choice(ids))))
    print("  checking it       ", timed(lambda _: verifyAnew(data, chain=chain.genesis.chain)))
    height = chain.head.height
    bare = encode(chain.prover.event(ids[0], trusted=height))
    print(f"  without certificates: {len(bare)} bytes")
    print(
        "  each of these     ",
        timed(lambda _: chain.prover.event(chance.choice(ids), trusted=height)),
    )
    chain.close()


def measureSigned(directory: Path) -> None:
    """A proof of an event of an author, with an idempotency key."""
    directory.mkdir()
    chain = SignedChain(directory)
    chain.openFor("t", "author")
    signed = chain.say("t", EVENT, author="author", key="order-2026-11-22-000000000000000001")
    others = [chain.say("t", EVENT, author="author") for _ in range(999)]
    head = chain.decide([signed, *others])
    data = encode(chain.prover.event(EventId(topicPrefix("t"), 1, head.height)))
    print(f"a signed event of 1000 in a block, {len(data)} bytes of proof")
    print("  checking it       ", timed(lambda _: verifyAnew(data, chain=chain.genesis.chain)))
    chain.close()


def measureTopics(directory: Path, count: int) -> None:
    """Topic proofs in a chain of so many topics."""
    directory.mkdir()
    chain = SignedChain(directory)
    names = [f"topic {number}" for number in range(count)]
    chain.decide([chain.make(Kind.OPEN, name) for name in names])
    chance = random.Random(3)

    def prove(_: int = 0) -> bytes:
        topic = chain.prover.topic(chance.choice(names), chain.state)
        return encode(chain.prover.certified(topic))

    data = prove()
    print(f"{count} topics, {len(data)} bytes of proof")
    print("  each              ", timed(prove))
    print("  checking it       ", timed(lambda _: verifyTopic(data, chain=chain.genesis.chain)))
    chain.close()


def fill(chain: SignedChain, blocks: int) -> None:
    """Give a chain many headers, straight into its tables, which have nothing else then."""
    head, history = chain.genesis.header(), History.of([chain.genesis.header().hash])
    writing = chain.store._writing
    writing.execute("BEGIN")
    for height in track(range(1, blocks + 1), "headers", transient=True):
        isLast = height == blocks
        head = evolve(
            head,
            height=height,
            parent=head.hash,
            # Only of the last one it is looked at.
            history=history.root if isLast else bytes(32),
        )
        # Without a certificate of the first block it would be an engine's chain.
        certificate = chain.certify(head).encode() if isLast or height == 1 else b""
        history = history.after(head.hash)
        writing.execute(
            "INSERT INTO head (height, transaction_total, hash, header, certificate)"
            " VALUES (?, ?, ?, ?, ?)",
            (height, 0, head.hash, head.encoded, certificate),
        )
        writing.executemany("INSERT INTO history VALUES (?, ?, ?)", history.completed)
    writing.execute("COMMIT")


def measureHistory(directory: Path, blocks: int) -> None:
    """Consistency proofs in a chain of so many blocks."""
    directory.mkdir()
    chain = SignedChain(directory)
    fill(chain, blocks)
    chance = random.Random(2)
    prover = chain.prover
    older, newer = prover.checkpoint(blocks // 3), prover.checkpoint(blocks)
    data = encode(prover.consistency(older.height, blocks))
    print(f"a history of {blocks} blocks, {len(data)} bytes of proof")
    print(
        "  making it         ",
        timed(lambda _: prover.consistency(chance.randrange(blocks), blocks), 200),
    )
    print(
        "  checking it       ",
        timed(lambda _: verifyConsistency(data, older=older, newer=newer), 200),
    )
    chain.close()


def main(arguments: Sequence[str]) -> None:
    """Measure, and print what came of it."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for count in (1000, 10_000):
            measureBlock(directory / f"events{count}", count)
        measureSigned(directory / "signed")
        measureTopics(directory / "topics", 10_000)
        for blocks in map(int, arguments or ("100000", "1000000")):
            measureHistory(directory / f"blocks{blocks}", blocks)


if __name__ == "__main__":
    main(sys.argv[1:])
