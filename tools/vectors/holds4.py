"""
Holds and releases of format 4, and the small chain that has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from svcbroker.chain import Erasure, Hold, Kind, Release, Transaction, topicAddress
from tools.vectors.cases import CHAIN
from tools.vectors.cases3 import manage2, send
from tools.vectors.cases4 import manage4, send4


def hold(
    nonce: int,
    case: str,
    patterns: Sequence[str] = (),
    events: Sequence[tuple[str, int]] = (),
    account: str = "ops",
) -> Transaction:
    """A hold of patterns, or of events by the names of their topics."""
    named = sorted((topicAddress(CHAIN, topic), number) for topic, number in events)
    content = Hold(
        case=case, account=account, reason="court order", patterns=patterns, events=named
    )
    return manage4(Kind.HOLD, nonce, "", content.encode())


def release(nonce: int, case: str) -> Transaction:
    """A release."""
    content = Release(case=case, account="", reason="case closed").encode()
    return manage4(Kind.RELEASE, nonce, "", content)


def _erase(nonce: int, topic: str, *ranges: tuple[int, int], version: int = 3) -> Transaction:
    content = Erasure(account="", reason="asked for", ranges=ranges).encode()
    return (manage2 if version == 2 else manage4)(Kind.ERASE, nonce, topic, content)


HELD: Mapping[str, Transaction] = {
    "hold of patterns": hold(1, "case-1", ["+/2026/#", "invoices/#", "orders/+"]),
    "hold of events": hold(2, "c" * 64, (), [("plain", 1), ("plain", 2**64 - 1), ("signed", 7)]),
    "hold without account": hold(3, "!~", ["#"], account=""),
    "release": release(4, "case-1"),
}

BLOCKS_HELD: Sequence[tuple[Sequence[int], Sequence[Transaction]]] = [
    # The signers and the transactions.
    (
        (0, 1, 2),
        [
            manage2(Kind.OPEN, 1, "plain"),
            manage2(Kind.OPEN, 2, "orders/new"),
            manage2(Kind.OPEN, 3, "$svc/audit"),
            manage2(Kind.OPEN, 4, "orders"),
            send(1, "plain", b"one"),
            send(2, "plain", b"two"),
            send(3, "plain", b"three"),
            send(4, "orders/new", b"first"),
            send(5, "orders", b"second"),
            send(6, "$svc/audit", b"third"),
            _erase(5, "plain", (2, 2), version=2),
        ],
    ),
    (
        (1, 2, 3),
        [
            hold(6, "case-1", (), [("plain", 1), ("plain", 3)]),
            hold(7, "case-1", ["#"]),
            hold(8, "erased", (), [("plain", 2)]),
            hold(9, "not-published", (), [("plain", 4)]),
            hold(10, "no-topic", (), [("nowhere", 1)]),
            _erase(11, "plain", (1, 2)),
            _erase(12, "plain", (1, 1), (3, 3), version=2),
            _erase(13, "plain", (1, 9)),
            _erase(14, "plain", (2, 2)),
            hold(15, "case-2", ["orders/+"]),
            _erase(16, "orders/new", (1, 1)),
            _erase(17, "orders", (1, 1)),
            hold(18, "erased-in-this-block", (), [("orders", 1)]),
            hold(19, "case-3", ["orders/#"]),
            send(7, "orders/new", b"published later"),
            release(20, "case-2"),
            release(20, "case-3"),
        ],
    ),
    (
        (0, 2, 3),
        [
            _erase(21, "orders/new", (2, 2)),
            release(22, "case-3"),
            release(23, "case-3"),
            release(24, "nothing"),
            _erase(25, "orders/new", (2, 2)),
            hold(26, "case-3", ["orders/new"]),
            _erase(27, "orders/new", (1, 1)),
            release(28, "case-3"),
            _erase(29, "orders/new", (1, 1)),
            hold(30, "all", ["+/audit"]),
            _erase(31, "$svc/audit", (1, 1)),
            manage4(Kind.OPEN, 32, "late"),
            send4(8, "late", b"held at once"),
            hold(33, "late", (), [("late", 1)]),
            _erase(34, "late", (1, 1)),
        ],
    ),
    (
        (0, 1, 3),
        [
            release(35, "case-1"),
            _erase(36, "plain", (1, 3)),
            _erase(37, "late", (1, 1)),
            hold(38, "case-1", (), [("plain", 1)]),
        ],
    ),
]
