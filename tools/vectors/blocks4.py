"""
The small chain of format 4, and blocks that might follow it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from svcbroker.chain import Header, Kind, Transaction, encodeAuthors, encodeBody, proposeBlock
from tools.vectors.authors import FIRST_AUTHORS, Statement
from tools.vectors.blocks3 import Block
from tools.vectors.cases import ALICE, BOB, CREATED, manage, publish
from tools.vectors.cases3 import erase, erased, manage2, openFor, send
from tools.vectors.cases4 import manage4, send4

OPENED_FOR = b"\1" + encodeAuthors(FIRST_AUTHORS)
"""Terms with authors alone."""

_PRIVATE = {"svc-private-name": "Ada", "svc-tag": "red"}


def _second(content: bytes, expected: int | None = None) -> Statement:
    """A statement of version 2, of an event of the topic signed."""
    return Statement(topic="signed", content=content, version=2, expected=expected)


def _erase4(nonce: int, topic: str, *ranges: tuple[int, int]) -> Transaction:
    """An erasure of version 3."""
    return manage4(Kind.ERASE, nonce, topic, erase(nonce, topic, *ranges).content)


BLOCKS4: Sequence[tuple[Sequence[int], Sequence[Transaction]]] = [
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
            send(4, "plain", b"order", key="order-1"),
            send(5, "plain", b"order two", key="order-2"),
            send(6, "plain", b"order three", key="order-3"),
            erase(2, "plain", (2, 2)),
            send(7, "plain", b"another order", key="order-1"),
            send(8, "signed", b"first", author="ada", expected=0),
        ],
    ),
    (
        (0, 2, 3),
        [
            send4(9, "signed", b"second", author="ada", expected=1),
            send4(10, "signed", b"left out", author=_second(b"left out", 2).by("ada")),
            send4(11, "signed", b"changed", author=_second(b"changed", 2).by("ada"), expected=3),
            send4(12, "signed", b"added", author=_second(b"added").by("ada"), expected=2),
            send4(13, "signed", b"too late", author="ada", expected=1),
            send4(14, "signed", b"no number", _PRIVATE, author="bert"),
            send(
                15,
                "signed",
                b"of version 1",
                author=Statement(topic="signed", content=b"of version 1").by("ada"),
                expected=3,
                version=3,
            ),
            send4(16, "signed", b"by no author of the topic", author="dora", expected=4),
            send(
                17,
                "signed",
                b"in version 2",
                author=replace(_second(b"in version 2").by("ada"), statement=1),
            ),
            send(18, "plain", b"order", key="order-1"),
            send(19, "plain", b"another order", key="order-1"),
            send(20, "other", b"order", key="order-1"),
            send(21, "plain", b"order two", key="order-2"),
            send4(22, "plain", b"order two", key="order-2"),
        ],
    ),
    (
        (0, 1, 2, 3),
        [
            send4(23, "plain", b"for a moment", key="order-4"),
            _erase4(3, "plain", (3, 3), (5, 5)),
            send(24, "plain", b"order two", key="order-2"),
            send(25, "plain", b"for a moment", key="order-4"),
            send(26, "plain", b"something else", key="order-4"),
            send(27, "plain", b"order three", key="order-3"),
            _erase4(4, "signed", (1, 2)),
            _erase4(5, "plain", (1, 99)),
            _erase4(6, "nowhere", (1, 1)),
        ],
    ),
    (
        (0, 1, 3),
        [
            send(28, "plain", b"order two", key="order-2"),
            send4(29, "plain", b"something else", key="order-2"),
            send(30, "signed", b"keyed", author="ada", key="order-1"),
            manage4(Kind.CLOSE, 7, "other"),
            manage4(Kind.OPEN, 8, "other"),
            manage4(Kind.OPEN, 9, "new"),
            manage2(Kind.CLOSE, 10, "new"),
            publish(ALICE, 31, "other", b"of version 1 still"),
            manage4(Kind.VALIDATORS, 11, "", b"no change"),
        ],
    ),
    ((0, 1, 3), []),
]


BLOCKS_UTF8: Sequence[tuple[Sequence[int], Sequence[Transaction]]] = [
    # A chain with names of topics in UTF-8: the signers and the transactions.
    (
        (0, 1, 2),
        [
            manage2(Kind.OPEN, 1, "plain"),
            manage4(Kind.OPEN, 2, "donn\u00e9es/\u00e9t\u00e9"),
            manage4(Kind.OPEN, 3, "\u7269\u6d41/\u7bb1", OPENED_FOR),
            manage4(Kind.OPEN, 4, "e\u0301"),
        ],
    ),
    (
        (1, 2, 3),
        [
            send4(1, "donn\u00e9es/\u00e9t\u00e9", b"hello", {"svc-tag": "\u00e9"}),
            send4(2, "\u7269\u6d41/\u7bb1", b"by nobody"),
            send4(3, "\u7269\u6d41/\u7bb1", b"nowhere: \xe9"),
            send4(4, "e\u0301", b"not normalised"),
            send4(5, "\u00e9", b"another topic"),
            manage4(Kind.OPEN, 5, "\u7269\u6d41/\u7bb1", OPENED_FOR),
            manage4(Kind.CLOSE, 6, "e\u0301"),
        ],
    ),
]


def nextBlocks4(made: Sequence[Block]) -> Mapping[str, tuple[Header, bytes]]:
    """
    Blocks that may not follow the small chain of format 4, or its first blocks, each for one
    reason, and those that may. See L{nextBlocks<tools.vectors.blocks3.nextBlocks>}.
    """
    last, first, second = made[-1], made[0], made[1]

    def after(block: Block, transaction: Transaction) -> tuple[Header, bytes]:
        """A block of one transaction."""
        candidate = proposeBlock(
            block.state, block.candidate.header, 0, CREATED + 100, [transaction]
        )
        return candidate.header, candidate.body

    old = publish(BOB, 60, "plain", b"goes on in version 1")
    middle, new = send(60, "plain", b"goes on"), send4(60, "plain", b"goes on in version 3")
    header, body = after(last, middle)
    early, late = after(second, new), after(second, middle)
    return {
        "": (header, body),
        " of version 1": after(last, old),
        " of version 3": after(last, new),
        " after format 2": after(first, new),
        " after format 3": early,
        "its format falls": (replace(header, version=3), body),
        "its format is 5": (replace(header, version=5), body),
        "it has version 3 in format 3": (replace(early[0], version=3), early[1]),
        "it has no version 3 in format 4": (replace(late[0], version=4), late[1]),
        "its content is missing": (after(last, new)[0], encodeBody([erased(new)])[0]),
        "its topic has a name in UTF-8": after(last, manage4(Kind.OPEN, 61, "\u00e9")),
        "its topic has terms": after(last, manage4(Kind.OPEN, 61, "terms", OPENED_FOR)),
    }
