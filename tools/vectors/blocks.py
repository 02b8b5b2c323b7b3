"""
The small chain of the test vectors, and blocks that might follow it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from svcbroker.chain import (
    Candidate,
    Certificate,
    ChainState,
    Header,
    History,
    Nonces,
    TransactionReceipt,
    encodeBody,
    encodeReceipts,
    execute,
    leaderIndex,
    merkleRoot,
    proposeBlock,
)
from svcbroker.chain._body import receiptRoot
from svcbroker.model import Execution, Topic
from tools.vectors.cases import (
    ALICE,
    ALONE,
    BLOCKS,
    CHAIN,
    GENESIS,
    KEYS,
    SIGNERS,
    TWINS,
    VIEWS,
    certify,
    publish,
)
from tools.vectors.sets import FIRST, FOLLOWING_KEYS, LATER_BLOCKS, LATER_SIGNERS, LATER_VIEWS


def makeChain() -> Sequence[tuple[Candidate, Certificate, ChainState]]:
    """The small chain: each block, what makes it final, and the state after it."""
    made = []
    parent, before = GENESIS.header(), GENESIS.state()
    hashes = [parent.hash]
    topics: dict[int, Topic] = {}
    accounts: dict[int, tuple[bytes, Nonces]] = {}
    for (round, time, transactions), view, signers in zip(
        [*BLOCKS, *LATER_BLOCKS], [*VIEWS, *LATER_VIEWS], [*SIGNERS, *LATER_SIGNERS], strict=True
    ):
        candidate = proposeBlock(before, parent, view, time, transactions)
        parent = candidate.header
        hashes.append(parent.hash)
        topics.update(sorted(candidate.outcome.topics.items()))
        accounts.update(sorted(candidate.outcome.senders.items()))
        keys = FOLLOWING_KEYS if before.validators.generation else KEYS
        before = ChainState(
            CHAIN,
            candidate.outcome.validators,
            History.of(hashes),
            topics.values(),
            accounts.values(),
        )
        made.append((candidate, certify(parent, round, signers, keys), before))
    return made


def twinBlock(parent: Header, view: int, timestamp: int) -> tuple[Header, bytes]:
    """
    A block after the small chain that publishes to both twins; everything else in it is right.
    """
    transactions = [publish(ALICE, 2000 + n, topic, b"twin") for n, topic in enumerate(TWINS)]
    _, _, state = makeChain()[-1]
    history = state.history.root
    receipts: list[TransactionReceipt] = []
    for transaction in transactions:
        outcome = execute(state, [transaction], parent.height + 1, timestamp)
        receipts += outcome.receipts
        state.apply(outcome, state.history)
    hashes = [transaction.hash for transaction in transactions]
    header = Header(
        chain=CHAIN,
        height=parent.height + 1,
        parent=parent.hash,
        history=history,
        view=view,
        proposer=leaderIndex(view, parent.height + 1, len(FOLLOWING_KEYS)),
        timestamp=timestamp,
        transactionRoot=merkleRoot(hashes),
        receiptRoot=receiptRoot(hashes, encodeReceipts(receipts)),
        stateRoot=state.root,
        validators=state.validators.hash,
        nextValidators=state.validators.hash,
        transactionCount=len(hashes),
        transactionTotal=parent.transactionTotal + len(hashes),
    )
    return header, encodeBody(transactions)[0]


def nextBlocks() -> Mapping[str, tuple[Header, bytes]]:
    """
    Blocks that may not follow the small chain, each for one reason, and one that may.

    @return: headers and bodies by why they are refused (empty: it is not).
    """
    last, _, state = makeChain()[-1]
    parent, time = last.header, last.header.timestamp
    transactions = [publish(ALICE, 2000, TWINS[0], b"goes on")]
    good = proposeBlock(state, parent, parent.view, time, transactions)
    header, body = good.header, good.body
    outcome = execute(state, transactions, header.height, time - 1)
    assert outcome.stateRoot == header.stateRoot  # the time shows in topics that are opened
    return {
        "": (header, body),
        "its view falls": (
            replace(header, view=0, proposer=leaderIndex(0, header.height, len(FOLLOWING_KEYS))),
            body,
        ),
        "its time falls": (replace(header, timestamp=time - 1), body),
        "it is not its leader's": (replace(header, proposer=(header.proposer + 1) % 5), body),
        "it is what would be its leader's in the set before": (
            replace(header, proposer=leaderIndex(header.view, header.height, len(KEYS))),
            body,
        ),
        "it is not of this chain": (replace(header, chain=ALONE.chain), body),
        "it leaves a height out": (replace(header, height=header.height + 1), body),
        "it has another parent": (replace(header, parent=parent.parent), body),
        "it leaves the state as it was": (replace(header, stateRoot=parent.stateRoot), body),
        "it numbers its event wrongly": (
            replace(
                header,
                receiptRoot=receiptRoot(
                    [transactions[0].hash],
                    encodeReceipts([TransactionReceipt(Execution.DONE, 99)]),
                ),
            ),
            body,
        ),
        "it has the nodes of before": (replace(header, validators=FIRST.hash), body),
        "it changes the nodes without a change": (replace(header, nextValidators=FIRST.hash), body),
        "it has its parent's history": (replace(header, history=parent.history), body),
        "it counts wrongly": (replace(header, transactionTotal=1), body),
        "its transactions are left out": (header, encodeBody([])[0]),
        "it publishes to twins": twinBlock(parent, parent.view, time),
    }
