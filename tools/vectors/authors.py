"""
Authors: keys, statements, sets of authors and erasures that the test vectors are made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve, frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from svcbroker.chain import Erasure, authorsStatement, encodeAuthorChange, encodeAuthors, statement
from svcbroker.model import AuthorChange, AuthorSet, Authorship
from tools.vectors.cases import ALONE, BIGGEST, CHAIN

PEMS: Mapping[str, str] = {
    # As "openssl genpkey -algorithm ed25519" has written them.
    name: f"-----BEGIN PRIVATE KEY-----\n{encoded}\n-----END PRIVATE KEY-----\n"
    for name, encoded in (
        ("ada", "MC4CAQAwBQYDK2VwBCIEIGWqXyH0iQlGy+TU52h6RYMjh75NNEs+GzCUHVkrQrTw"),
        ("bert", "MC4CAQAwBQYDK2VwBCIEID6ov9LO/LCgqVNy+kXH0UVS7W9z+rlZ2OHplZ/CjrAb"),
        ("carol", "MC4CAQAwBQYDK2VwBCIEIAQnZQhF7HR6mypn2h75YgKbIvJqzsSTiteIQEKtXOBn"),
        ("dora", "MC4CAQAwBQYDK2VwBCIEIN5YN00RClnnoE0akY4rEbrVu+6pdPWeCghi3jndihzw"),
    )
}


def _load(pem: str) -> Ed25519PrivateKey:
    key = load_pem_private_key(pem.encode("ascii"), None)
    assert isinstance(key, Ed25519PrivateKey)
    return key


AUTHOR_KEYS: Mapping[str, Ed25519PrivateKey] = {name: _load(pem) for name, pem in PEMS.items()}
PUBLIC: Mapping[str, bytes] = {
    name: key.public_key().public_bytes_raw() for name, key in AUTHOR_KEYS.items()
}


@frozen(kw_only=True)
class Statement:
    """
    An event, as an author signs it.
    """

    topic: str
    content: bytes = b"hello"
    signedAt: int = 1_700_000_000_123
    key: str | None = None
    extensions: Mapping[str, str] = {}
    chain: bytes = CHAIN
    version: int = 1
    expected: int | None = None

    @property
    def text(self) -> bytes:
        """The text that is signed."""
        return statement(
            self.chain,
            self.topic,
            self.content,
            self.signedAt,
            self.key,
            self.extensions,
            self.version,
            self.expected,
        )

    def by(self, name: str) -> Authorship:
        """The authorship of an author."""
        return Authorship(
            key=PUBLIC[name],
            signedAt=self.signedAt,
            signature=AUTHOR_KEYS[name].sign(self.text),
            statement=self.version,
        )


STATEMENTS: Mapping[str, Statement] = {
    "plain": Statement(topic="com/example/test"),
    "no content": Statement(topic="com/example/test", content=b""),
    "with a key": Statement(topic="com/example/test", key="order-1"),
    "every character of a key": Statement(topic="x", key="!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
    "extensions by bytes, public and private": Statement(
        topic="\x80 ~",
        content=bytes(range(256)),
        extensions={
            "svc-\U00010000": "",
            "svc-\uffff": "\u00e9=\n",
            "svc-private-name": "Ada\nchain=0",
            "svc-a": "1",
        },
    ),
    "numbers at their ends": Statement(topic="x" * 256, signedAt=BIGGEST, key="k" * 64),
    "in 1970": Statement(topic="x", signedAt=0),
}

_LOW_ORDER = b"\x01" + bytes(31)
_ORDER = 2**252 + 27742317777372353535851937790883648493


def badSignatures() -> Sequence[tuple[str, bytes, bytes]]:
    """
    Signatures of the first statement that do not hold.

    @return: why, the public key and the signature.
    """
    meant = STATEMENTS["plain"]
    key, good = PUBLIC["ada"], meant.by("ada").signature
    scalar = int.from_bytes(good[32:], "little") + _ORDER
    others = {
        "of another content": evolve(meant, content=b"hellO"),
        "of another topic": evolve(meant, topic="com/example/tesT"),
        "of another chain": evolve(meant, chain=ALONE.chain),
        "of another time": evolve(meant, signedAt=meant.signedAt + 1),
        "of another idempotency key": evolve(meant, key="order-1"),
        "of another extension": evolve(meant, extensions={"svc-tag": "red"}),
    }
    return [
        *((why, key, other.by("ada").signature) for why, other in others.items()),
        ("by another author", key, meant.by("bert").signature),
        ("zeros", key, bytes(64)),
        ("a scalar above the order", key, good[:32] + scalar.to_bytes(32, "little")),
        ("a key of low order", _LOW_ORDER, _LOW_ORDER + bytes(32)),
        ("a key that is not canonical", b"\xee" + b"\xff" * 30 + b"\x7f", _LOW_ORDER + bytes(32)),
        ("a key that is no point", b"\x02" + bytes(31), good),
    ]


def authorSet(authors: str, admins: str = "", generation: int = 0) -> AuthorSet:
    """A set of authors and admins, by their names."""
    return AuthorSet(
        generation=generation,
        authors=tuple(sorted(PUBLIC[name] for name in authors.split())),
        admins=tuple(sorted(PUBLIC[name] for name in admins.split())),
    )


FIRST_AUTHORS = authorSet("ada bert", "carol")
SECOND_AUTHORS = authorSet("ada dora", "carol dora", 1)
LAST_AUTHORS = authorSet("dora", "", 2)


def authorSets() -> Sequence[AuthorSet]:
    """Some sets of authors."""
    numbers = tuple(number.to_bytes(32, "big") for number in range(64))
    return [
        FIRST_AUTHORS,
        SECOND_AUTHORS,
        LAST_AUTHORS,
        AuthorSet(generation=BIGGEST, authors=numbers, admins=numbers[:16]),
    ]


def badAuthorSets() -> Mapping[str, bytes]:
    """Bytes that are no set of authors."""
    good, (one, other) = encodeAuthors(FIRST_AUTHORS), FIRST_AUTHORS.authors
    numbers = [number.to_bytes(32, "big") for number in range(65)]
    return {
        "nothing": b"",
        "ends in the generation": good[:7],
        "ends in the authors": good[:72],
        "ends in the admins": good[:-1],
        "more after the end": good + b"\x00",
        "no authors": bytes(8) + b"\x00\x00",
        "an author twice": good[:9] + one + one + good[73:],
        "authors that fall": good[:9] + other + one + good[73:],
        "65 authors": bytes(8) + b"\x41" + b"".join(numbers) + b"\x00",
        "17 admins": bytes(8) + b"\x01" + one + b"\x11" + b"".join(numbers[:17]),
        "admins that fall": good[:73] + b"\x02" + other + one,
    }


def authorChange(
    following: AuthorSet,
    admin: str = "carol",
    *,
    topic: str = "signed",
    chain: bytes = CHAIN,
    signer: str | None = None,
) -> AuthorChange:
    """A change of a topic's authors, signed by C{signer}, by default the admin."""
    signed = authorsStatement(chain, topic, following)
    return AuthorChange(
        following=following,
        admin=PUBLIC[admin],
        signature=AUTHOR_KEYS[signer or admin].sign(signed),
    )


def authorChanges() -> Sequence[tuple[str, AuthorChange]]:
    """
    Changes of the first set of the topic C{signed}, and those that are refused.

    @return: pairs of why it is refused (empty: it is not) and the change.
    """
    good = authorChange(SECOND_AUTHORS)
    return [
        ("", good),
        ("", authorChange(authorSet("bert", "", 1))),
        ("it is not the next generation", authorChange(evolve(SECOND_AUTHORS, generation=0))),
        ("it leaves a generation out", authorChange(evolve(SECOND_AUTHORS, generation=2))),
        ("an author is no admin", authorChange(SECOND_AUTHORS, "ada")),
        ("an admin of the new set only", authorChange(SECOND_AUTHORS, "dora")),
        ("a signature of another key", authorChange(SECOND_AUTHORS, signer="ada")),
        ("a signature of another set", evolve(good, following=authorSet("ada", "carol", 1))),
        ("a signature for another topic", authorChange(SECOND_AUTHORS, topic="plain")),
        ("a signature for another chain", authorChange(SECOND_AUTHORS, chain=ALONE.chain)),
    ]


def badAuthorChanges() -> Mapping[str, bytes]:
    """Bytes that are no change of authors."""
    good = encodeAuthorChange(authorChange(SECOND_AUTHORS))
    return {
        "nothing": b"",
        "a set alone": encodeAuthors(SECOND_AUTHORS),
        "ends in the key": good[:-65],
        "ends in the signature": good[:-1],
        "more after the end": good + b"\x00",
        "no authors": bytes(8) + b"\x00\x00" + good[-96:],
    }


ERASURES: Sequence[Erasure] = [
    Erasure(account="operator", reason="Art. 17", ranges=[(1, 1), (3, 4)]),
    Erasure(account="", reason="", ranges=[(1, 65536)]),
    Erasure(account="\U0001f600" * 63, reason="\u00e9" * 512, ranges=[(BIGGEST, BIGGEST)]),
    Erasure(account="o", reason="r", ranges=[(2 * n + 1, 2 * n + 1) for n in range(1024)]),
    Erasure(account="o", reason="neighbours", ranges=[(1, 1), (2, 2)]),
]


def badErasures() -> Mapping[str, bytes]:
    """Bytes that are no content of an erasure."""

    def ranges(*each: tuple[int, int]) -> bytes:
        return Erasure(account="o", reason="r", ranges=each).encode()

    good = ranges((1, 1), (3, 4))
    return {
        "nothing": b"",
        "ends in the account": b"\x02o",
        "ends in the reason": b"\x01o\x00\x02r",
        "ends in the ranges": good[:-1],
        "more after the end": good + b"\x00",
        "an account that is not UTF-8": b"\x01\xff" + good[2:],
        "a reason that is not UTF-8": good[:4] + b"\xff" + good[5:],
        "a reason of 1025 bytes": b"\x00\x04\x01" + b"r" * 1025 + good[5:],
        "no ranges": ranges(),
        "1025 ranges": ranges(*((2 * n + 1, 2 * n + 1) for n in range(1025))),
        "event 0": ranges((0, 1)),
        "a range that falls": ranges((2, 1)),
        "ranges that fall": ranges((3, 4), (1, 1)),
        "ranges that overlap": ranges((1, 3), (3, 4)),
        "65537 events": ranges((1, 65537)),
        "65537 events in two ranges": ranges((1, 1), (3, 65538)),
        "all events that there can be": ranges((1, BIGGEST)),
    }
