"""
Chains as an engine's blocks make them, made here and stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from svcbroker.archive import appendOf, loadChain
from svcbroker.chain import Genesis, Kind, Transaction, proposeBlock
from svcbroker.storage import Store

KEYS = tuple(bytes([number]) * 32 for number in range(1, 5))
GENESIS = Genesis(group="joining", created=1_800_000_000_000, validators=KEYS)
SENDER = bytes(20)

Fill = Callable[[int], Sequence[bytes] | None]
"""By height, the contents of the events in a block; C{None} for a block with nothing in it."""


def everyOther(height: int) -> Sequence[bytes] | None:
    """What engines make of events that come one by one, of different sizes."""
    if height % 2:
        return None
    random = Random(height)
    return [random.randbytes(random.randrange(400)) for _ in range(random.randrange(1, 6))]


def makeChain(
    path: Path, count: int, fill: Fill = everyOther, genesis: Genesis = GENESIS
) -> Sequence[bytes]:
    """
    Store a chain.

    @param count: how many blocks it has.
    @return: the hashes of its headers, that of genesis first.
    """
    store = Store.create(path, chainId=genesis.chain, genesis=genesis.encoded)
    chain = loadChain(store)
    head, state, nonce = chain.head, chain.state, 0
    hashes = [head.hash]
    for height in range(1, count + 1):
        transactions = []
        contents = fill(height)
        for content in () if contents is None else [b"", *contents]:
            nonce += 1
            transactions.append(
                Transaction.create(
                    Kind.PUBLISH if content or nonce > 1 else Kind.OPEN,
                    SENDER,
                    nonce,
                    genesis.created + height,
                    "topic",
                    content,
                )
            )
        block = proposeBlock(state, head, head.view, genesis.created + height, transactions)
        store.append(appendOf(block, None))
        state.apply(block.outcome, block.history)
        head = block.header
        hashes.append(head.hash)
    store.close()
    return hashes
