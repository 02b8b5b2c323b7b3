"""
Statements and transactions of version 3 that the test vectors are made of.
"""

from __future__ import annotations

from collections.abc import Mapping

from svcbroker.chain import Kind, Transaction, encodeAuthors
from svcbroker.model import Authorship
from tools.vectors.authors import ERASURES, FIRST_AUTHORS, Statement
from tools.vectors.cases import BIGGEST, BOB, CREATED
from tools.vectors.cases3 import committed, manage2, send

STATEMENTS2: Mapping[str, Statement] = {
    "no expected number": Statement(topic="com/example/test", version=2),
    "expected number 0": Statement(topic="com/example/test", version=2, expected=0),
    "expected number": Statement(topic="x", version=2, key="order-1", expected=17),
    "the highest expected number": Statement(
        topic="\x80 ~",
        version=2,
        expected=BIGGEST,
        extensions={"svc-private-name": "Ada\nexpected=0", "svc-a": "1"},
    ),
}


def send4(
    nonce: int,
    topic: str,
    content: bytes,
    extensions: Mapping[str, str] | None = None,
    *,
    author: Authorship | str | None = None,
    key: str | None = None,
    expected: int | None = None,
) -> Transaction:
    """
    A publish of version 3.

    @param author: the name of the author that signs its statement of version 2, or an authorship.
    """
    if isinstance(author, str):
        meant = Statement(
            topic=topic,
            content=content,
            key=key,
            extensions=extensions or {},
            version=2,
            expected=expected,
        )
        author = meant.by(author)
    return send(
        nonce,
        topic,
        content,
        extensions,
        author=author,
        key=key,
        expected=expected,
        version=3,
    )


def manage4(kind: Kind, nonce: int, topic: str, content: bytes = b"") -> Transaction:
    """A transaction of version 3 that is not a publish."""
    return Transaction.make(kind, BOB, nonce, CREATED, topic, content, 3)


def _signed(name: str, nonce: int) -> Transaction:
    """The publish of a statement."""
    meant = STATEMENTS2[name]
    return send4(
        nonce,
        meant.topic,
        meant.content,
        meant.extensions,
        author=meant.by("bert"),
        key=meant.key,
        expected=meant.expected,
    )


TRANSACTIONS4: Mapping[str, Transaction] = {
    "open": manage4(Kind.OPEN, 1, "com/example/test"),
    "close": manage4(Kind.CLOSE, 2, "com/example/test"),
    "erasure": manage4(Kind.ERASE, 3, "plain", ERASURES[0].encode()),
    "open with a name in UTF-8": manage4(Kind.OPEN, 4, "donn\u00e9es/\u00e9t\u00e9"),
    "open with terms": manage4(Kind.OPEN, 5, "x", b"\1" + encodeAuthors(FIRST_AUTHORS)),
    "publish": send4(1, "com/example/test", b"hello"),
    "idempotency key": send4(2, "x", b"k", key="order-1"),
    **{f"signed: {name}": _signed(name, 10 + n) for n, name in enumerate(STATEMENTS2)},
    "signed: a statement of version 1": send(
        20,
        "x",
        b"s",
        author=Statement(topic="x", content=b"s").by("ada"),
        expected=3,
        version=3,
    ),
    "signed: the expected number was left out": send4(
        21, "x", b"s", author=Statement(topic="x", content=b"s", version=2, expected=3).by("ada")
    ),
}


def badTransactions4() -> Mapping[str, bytes]:
    """Bytes that are no transaction of version 3, though nearly."""
    plain = send4(1, "x", b"c")
    signed = send4(2, "x", b"c", author="ada")
    old = send(3, "x", b"c", author="ada")
    options = 73

    def withOptions(transaction: Transaction, number: int) -> bytes:
        head = transaction.head[:options] + bytes([number]) + transaction.head[options + 1 :]
        return committed(head, transaction.seal, transaction.content)

    closing = manage4(Kind.CLOSE, 1, "x").head
    entry = plain.head + plain.seal + plain.content
    return {
        "version 0": b"\x00" + entry[1:],
        "version 4": b"\x04" + entry[1:],
        "kind 0": b"\x03\x00" + entry[2:],
        "kind 10": b"\x03\x0a" + entry[2:],
        "a statement of version 2 without an author": withOptions(plain, 16),
        "a statement of version 2 in version 2": withOptions(old, 17),
        "an unknown option": withOptions(signed, 65),
        "a statement's version on a close": closing[:options] + b"\x10" + closing[options + 1 :],
        "other content": entry[:-1] + b"d",
        "terms of another part": _entry(manage4(Kind.OPEN, 1, "x", b"\x08")),
        "authors without terms": _entry(manage4(Kind.OPEN, 1, "x", encodeAuthors(FIRST_AUTHORS))),
        "a name in UTF-8 in version 2": _entry(manage2(Kind.OPEN, 1, "\u00e9")),
        "a name of 257 bytes": _entry(manage4(Kind.OPEN, 1, "x" + 128 * "\u00e9")),
        "content on a close": _entry(manage4(Kind.CLOSE, 1, "x", b"c")),
        "a control character in a name": _entry(manage4(Kind.CLOSE, 1, "a\n")),
        "a change of validators with a topic": _entry(manage4(Kind.VALIDATORS, 1, "x", b"c")),
        "an erasure of no events": _entry(manage4(Kind.ERASE, 1, "x", b"\x00\x00\x00\x00\x00")),
    }


def _entry(transaction: Transaction) -> bytes:
    return transaction.head + transaction.seal + transaction.content
