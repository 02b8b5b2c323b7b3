"""
The small chain of format 3, and blocks that might follow it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve, frozen
from msgspec.structs import replace

from svcbroker.chain import (
    Candidate,
    Certificate,
    ChainState,
    Genesis,
    Header,
    Kind,
    Transaction,
    encodeBody,
    proposeBlock,
)
from svcbroker.model import Execution
from tools.vectors.authors import (
    FIRST_AUTHORS,
    LAST_AUTHORS,
    SECOND_AUTHORS,
    Statement,
    authorChange,
    authorSet,
)
from tools.vectors.cases import ALICE, CREATED, GENESIS, KEYS, certify, manage, publish
from tools.vectors.cases3 import MARY, change, erase, erased, manage2, openFor, send
from tools.vectors.sets import FOLLOWING_KEYS, GOOD

_FORGED = Statement(topic="signed", content=b"not this").by("ada")

_ADA = {"svc-tag": "red", "svc-private-name": "Ada"}

BLOCKS: Sequence[tuple[Sequence[int], Sequence[Transaction]]] = [
    # The signers and the transactions.
    (
        (0, 1, 2),
        [
            manage(Kind.OPEN, ALICE, 1, "plain"),
            publish(ALICE, 2, "plain", b"before"),
            manage(Kind.OPEN, ALICE, 3, "other"),
        ],
    ),
    (
        (1, 2, 3),
        [
            openFor(1, "signed", FIRST_AUTHORS),
            manage2(Kind.OPEN, 2, "plain"),
            openFor(3, "plain", FIRST_AUTHORS),
            openFor(4, "signed", FIRST_AUTHORS),
            openFor(5, "signed", authorSet("ada", "carol")),
            publish(ALICE, 4, "plain", b"of version 1 still"),
            publish(ALICE, 5, "signed", b"of version 1, by no author"),
            send(6, "plain", b"by no author"),
            send(7, "plain", b"by an author all the same", author="dora"),
            send(8, "signed", b"first", _ADA, author="ada"),
            send(9, "signed", b"by no author"),
            send(10, "signed", b"by no author of the topic", author="dora"),
            send(11, "signed", b"forged", author=_FORGED),
            send(12, "nowhere", b"forged", author=_FORGED),
            send(13, "nowhere", b"to no topic", author="ada"),
            send(11, "signed", b"its nonce was used", author="ada"),
            send(14, "plain", b"secret", {"svc-private-": "", "svc-a": "1"}),
            send(15, "signed", b"second", author="bert"),
        ],
    ),
    (
        (0, 2, 3),
        [
            send(16, "plain", b"order", key="order-1"),
            send(17, "plain", b"order", key="order-1"),
            send(18, "plain", b"another order", key="order-1"),
            send(19, "other", b"order", key="order-1"),
            send(20, "plain", b"order", key="order-1", owner=MARY),
            send(21, "signed", b"order", key="order-1", author="ada"),
            send(
                22,
                "signed",
                b"order",
                key="order-1",
                author=Statement(
                    topic="signed", content=b"order", key="order-1", signedAt=CREATED + 9
                ).by("ada"),
            ),
            send(23, "signed", b"order", key="order-1", author="bert"),
            send(24, "nowhere", b"order", key="order-2"),
            send(25, "plain", b"order two", key="order-2"),
            send(26, "plain", b"eight expected", expected=8),
            send(27, "plain", b"eight expected", expected=8),
            send(28, "other", b"none expected", expected=0),
            send(29, "other", b"expected and published before", key="order-3", expected=1),
            send(30, "other", b"expected and published before", key="order-3", expected=1),
            send(31, "nowhere", b"expected", expected=0),
            manage2(Kind.CLOSE, 6, "other"),
            send(32, "other", b"expected and published before", key="order-3", expected=1),
            send(33, "other", b"of a closed topic", key="order-4"),
        ],
    ),
    (
        (0, 1, 2, 3),
        [
            change(7, "signed", authorChange(SECOND_AUTHORS, "ada")),
            change(8, "signed", authorChange(evolve(SECOND_AUTHORS, generation=2))),
            change(9, "plain", authorChange(SECOND_AUTHORS, topic="plain")),
            change(10, "other", authorChange(SECOND_AUTHORS, topic="other")),
            change(11, "nowhere", authorChange(SECOND_AUTHORS, topic="nowhere")),
            change(12, "signed", authorChange(SECOND_AUTHORS)),
            change(13, "signed", authorChange(SECOND_AUTHORS)),
            send(34, "signed", b"by an author of before", author="bert"),
            send(35, "signed", b"by an author of now", author="dora"),
            openFor(14, "signed", evolve(SECOND_AUTHORS, generation=0)),
            openFor(15, "signed", FIRST_AUTHORS),
            send(36, "signed", b"order", key="order-1", author="bert"),
            change(16, "signed", authorChange(LAST_AUTHORS, "dora")),
            change(17, "signed", authorChange(authorSet("ada", "", 3), "dora")),
        ],
    ),
    (
        (0, 1, 3),
        [
            erase(18, "plain", (1, 99)),
            erase(19, "nowhere", (1, 1)),
            send(37, "plain", b"for a moment", key="order-5"),
            erase(20, "plain", (1, 2), (5, 6), (10, 10)),
            erase(21, "other", (2, 2)),
            erase(22, "plain", (2, 3)),
            send(38, "plain", b"an order that was erased", key="order-1"),
            send(39, "plain", b"an order that was erased", key="order-5"),
            send(40, "other", b"an order that was erased", key="order-1"),
            send(41, "plain", b"order", key="order-1", owner=MARY),
            erase(23, "signed", (1, 1), (3, 3)),
            manage2(Kind.VALIDATORS, 24, "", GOOD.encode()),
        ],
    ),
    (
        (0, 1, 2, 4),
        [
            send(42, "plain", b"an order that was erased in a block before", key="order-5"),
            send(43, "signed", b"an order that was erased", key="order-1", author="ada"),
            manage2(Kind.OPEN, 25, "other"),
            send(44, "other", b"expected and published before", key="order-3"),
            erase(26, "plain", (7, 8)),
            send(45, "plain", b"last", _ADA, author="ada", key="last", expected=10),
        ],
    ),
    ((0, 1, 3, 4), []),
]


@frozen(kw_only=True)
class Block:
    """
    A block of the small chain.

    @ivar stored: its body, as a node stores it at first.
    @ivar state: the state after it.
    """

    candidate: Candidate
    certificate: Certificate
    stored: Sequence[Transaction]
    state: ChainState


def makeChain(
    blocks: Sequence[tuple[Sequence[int], Sequence[Transaction]]] = BLOCKS,
    genesis: Genesis = GENESIS,
) -> Sequence[Block]:
    """
    The small chain.

    @param blocks: the signers and the transactions of each block.
    """
    made = []
    parent, state = genesis.header(), genesis.state()
    for signers, transactions in blocks:
        keys = FOLLOWING_KEYS if state.validators.generation else KEYS
        time = CREATED + 10 * parent.height
        candidate = proposeBlock(state, parent, 0, time, transactions)
        parent = candidate.header
        state.apply(candidate.outcome, candidate.history)
        stored = [
            erased(each) if each.seal and receipt.execution is not Execution.DONE else each
            for each, receipt in zip(transactions, candidate.outcome.receipts, strict=True)
        ]
        certificate = certify(parent, 0, signers, keys)
        after = ChainState(
            genesis.chain,
            state.validators,
            state.history,
            tuple(state._topics),
            tuple(state._senders),
            topicRule=genesis.topics,
        )
        made.append(Block(candidate=candidate, certificate=certificate, stored=stored, state=after))
    return made


def lastBodies(made: Sequence[Block]) -> Sequence[bytes]:
    """The bodies of the small chain when everything that it erases is gone."""
    gone = {
        (each.topic, number)
        for block in made
        for each in block.candidate.outcome.erased
        for number in range(each.first, each.last + 1)
    }
    names = [topic.name for topic in made[-1].state._topics]
    return [
        encodeBody(
            [
                erased(each)
                if each.head[1] == Kind.PUBLISH
                and receipt.execution is Execution.DONE
                and (names.index(each.topic), receipt.sequence) in gone
                else each
                for each, receipt in zip(
                    block.stored, block.candidate.outcome.receipts, strict=True
                )
            ]
        )[0]
        for block in made
    ]


def nextBlocks(made: Sequence[Block]) -> Mapping[str, tuple[Header, bytes]]:
    """
    Blocks that may not follow the small chain, or its first block, each for one reason, and those
    that may.

    @return: headers and bodies by the height that they have, and why they are refused (nothing: it
        is not).
    """
    last, first = made[-1], made[0]
    new = send(46, "plain", b"goes on")
    old = publish(ALICE, 46, "plain", b"goes on in version 1")
    made2 = proposeBlock(last.state, last.candidate.header, 0, CREATED, [new])
    made1 = proposeBlock(last.state, last.candidate.header, 0, CREATED, [old])
    second = proposeBlock(first.state, first.candidate.header, 0, CREATED, [old])
    third = proposeBlock(first.state, first.candidate.header, 0, CREATED, [new])
    return {
        "": (made2.header, made2.body),
        " of version 1": (made1.header, made1.body),
        " of format 2": (second.header, second.body),
        " of format 3": (third.header, third.body),
        "its format falls": (replace(made1.header, version=2), made1.body),
        "its format is 4": (replace(made2.header, version=4), made2.body),
        "it has version 2 in format 2": (replace(third.header, version=2), third.body),
        "it has no version 2 in format 3": (replace(second.header, version=3), second.body),
        "its content is missing": (made2.header, encodeBody([erased(new)])[0]),
    }
