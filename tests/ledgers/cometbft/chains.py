"""
Chains as an engine's blocks make them, made here and stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from svcbroker.archive import appendOf, loadChain
from svcbroker.chain import (
    Genesis,
    Kind,
    Transaction,
    ValidatorChange,
    ValidatorSet,
    changePayload,
    proposeBlock,
)
from svcbroker.proofs.cometbft import Hex
from svcbroker.storage import Store

from .support import FakeChain, Node, replaceHeader

NODES = [Node.numbered(number, 1) for number in range(1, 5)]
LATER = [*NODES[1:], Node.numbered(5, 1), Node.numbered(6, 1)]
"""The nodes after a change."""
KEYS = tuple(bytes(node.member.key) for node in NODES)
GENESIS = Genesis(group="joining", created=1_800_000_000_000, validators=KEYS)
SENDER = bytes(20)

Fill = Callable[[int], Sequence[bytes] | None]
"""By height, the contents of the events in a block; C{None} for a block with nothing in it."""


def everyOther(height: int) -> Sequence[bytes] | None:
    """Blocks as engines make them of events that come one by one, of different sizes."""
    if height % 2:
        return None
    random = Random(height)
    return [random.randbytes(random.randrange(400)) for _ in range(random.randrange(1, 6))]


def _change(chain: bytes, current: ValidatorSet) -> bytes:
    following = ValidatorSet(
        current.generation + 1, tuple(bytes(node.member.key) for node in LATER)
    )
    payload = changePayload(chain, current, following)
    return ValidatorChange(
        following=following,
        approvals=tuple((index, node.key.sign(payload)) for index, node in enumerate(NODES)),
        acceptances=tuple(node.key.sign(payload) for node in LATER),
    ).encode()


def makeChain(
    path: Path,
    count: int,
    fill: Fill = everyOther,
    genesis: Genesis = GENESIS,
    *,
    change: int = 0,
    isProved: bool = False,
) -> Sequence[bytes]:
    """
    Store a chain.

    @param count: how many blocks it has.
    @param change: the height at which the nodes change; 0: they never do.
    @param isProved: whether it is stored what shows that blocks are final.
    @return: the hashes of its headers, that of genesis first.
    """
    store = Store.create(path, chainId=genesis.chain, genesis=genesis.encoded)
    chain = loadChain(store)
    head, state, nonce = chain.head, chain.state, 0
    hashes = [head.hash]
    for height in range(1, count + 1):
        sent: list[tuple[Kind, bytes]] = []
        contents = fill(height)
        if contents is not None:
            sent = [(Kind.OPEN, b""), *((Kind.PUBLISH, content) for content in contents)]
        if height == change:
            sent.append((Kind.VALIDATORS, _change(genesis.chain, state.validators)))
        transactions = []
        for kind, content in sent:
            nonce += 1
            topic = "" if kind is Kind.VALIDATORS else "topic"
            transactions.append(
                Transaction.create(kind, SENDER, nonce, genesis.created + height, topic, content)
            )
        nodes = NODES if state.validators.generation == 0 else LATER
        block = proposeBlock(state, head, head.view, genesis.created + height, transactions)
        store.append(appendOf(block, b""))
        state.apply(block.outcome, block.history)
        head = block.header
        hashes.append(head.hash)
        if isProved and transactions:
            engine = FakeChain(nodes, genesis.group, height)
            shown = engine.add(change=replaceHeader(appHash=Hex(head.hash)))
            store.certify({height: shown.encode()})
    store.close()
    return hashes
