"""
What each organisation hands to the others before a network begins, and the genesis that follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, TypeVar

import msgspec
from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct, structs

from ... import chain
from ...proofs.cometbft import Instant, addressOf
from ._config import Address, ConfigInvalid, Peer, checkName
from ._genesis import Genesis, encodeGenesis, makeValidator
from ._keyfiles import EngineKeys, publicKey

MAX_CARD: Final = 16 * 1024
"""The most bytes that a card has."""

BLOCK_BYTES: Final = 8 * 1024 * 1024
"""The most bytes that a block of a network has that is founded by cards."""

_TAG = b"svcbroker/card\x01"
_PORTS = range(1, 65536)
_LONGEST_HOST = 253
_MILLISECONDS = 1_000_000

T = TypeVar("T")


class CardInvalid(Exception):
    """A card that cannot be used. The text is one line for the operator."""


def parseAddress(text: str) -> Address:
    """
    Read C{host:port}, or C{[host]:port} where the host has colons.

    @raise ConfigInvalid: it is neither.
    """
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    isGood = 0 < len(host) <= _LONGEST_HOST and host.isascii() and host.isprintable()
    if not isGood or set(host) & set(' ,@"\\/[]') or not (port.isascii() and port.isdigit()):
        raise ConfigInvalid(f"{text[:300]!r} is not host:port")
    if len(port) > 5 or int(port) not in _PORTS:
        raise ConfigInvalid(f"{text[:300]!r} has no port from 1 to 65535")
    return Address(host=host, port=int(port))


class Card(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The public part of a node.

    @ivar chain: the engines' name of the chain that it is made for.
    @ivar name: what the node is called.
    @ivar nodeId: how its peers know it.
    @ivar p2p: where they reach it, C{host:port}.
    @ivar validator: its public key as a validator, in hexadecimal digits.
    @ivar broker: the public key of the broker beside it, in hexadecimal digits.
    @ivar made: when it was made, in milliseconds since the epoch.
    @ivar signature: the validator's, over all the rest.
    """

    kind: Literal["svcbroker-card"] = "svcbroker-card"
    chain: str
    name: str
    nodeId: str
    p2p: str
    validator: str
    broker: str
    made: int
    signature: str

    @property
    def key(self) -> bytes:
        """The validator's public key."""
        return bytes.fromhex(self.validator)

    @property
    def peer(self) -> Peer:
        """The engine as its peers see it."""
        return Peer(nodeId=self.nodeId, address=parseAddress(self.p2p))

    @property
    def payload(self) -> bytes:
        """What is signed."""
        return _TAG + msgspec.json.encode(structs.replace(self, signature=""))


def makeCard(
    seed: bytes,
    keys: EngineKeys,
    *,
    chain: str,
    name: str,
    p2p: Address,
    broker: bytes,
    now: float,
) -> Card:
    """
    The card of a node.

    @param seed: the validator's private key.
    @param broker: the public key of the broker beside it.
    @param now: seconds since the epoch.
    @raise ConfigInvalid: a name cannot be one.
    """
    card = Card(
        chain=checkName(chain, "the chain"),
        name=checkName(name, "the node"),
        nodeId=keys.nodeId,
        p2p=str(p2p),
        validator=publicKey(seed).hex(),
        broker=broker.hex(),
        made=int(now * 1000),
        signature="",
    )
    signature = Ed25519PrivateKey.from_private_bytes(seed).sign(card.payload)
    return structs.replace(card, signature=signature.hex())


def encodeCard(card: Card) -> bytes:
    """The file of a card."""
    return msgspec.json.format(msgspec.json.encode(card), indent=2) + b"\n"


def readCard(data: bytes) -> Card:
    """
    Read a card, and make sure that the validator's owner has made it.

    @raise CardInvalid: it is none, or was changed.
    """
    if len(data) > MAX_CARD:
        raise CardInvalid(f"is larger than {MAX_CARD} bytes")
    try:
        card = msgspec.json.decode(data, type=Card)
        checkName(card.chain, "the chain")
        checkName(card.name, "the node")
        parseAddress(card.p2p)
        key, signature = _digits(card.validator, 32), _digits(card.signature, 64)
        _digits(card.broker, 32)
        _digits(card.nodeId, 20)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CardInvalid(f"is not a card: {error}") from None
    except (ConfigInvalid, ValueError) as error:
        raise CardInvalid(str(error)) from None
    if not 0 <= card.made < 2**53:
        raise CardInvalid("was made at no time")
    if not chain.verifySignature(key, card.payload, signature):
        raise CardInvalid("was changed after it was made: its signature does not hold")
    return card


def _digits(text: str, size: int) -> bytes:
    value = bytes.fromhex(text)
    if len(value) != size or value.hex() != text:
        raise ValueError(f"has no {size} bytes in hexadecimal digits where they should be")
    return value


@frozen(kw_only=True)
class Founding:
    """
    How a network begins. It follows from the cards alone, in whatever order they come.

    @ivar genesis: the engines' genesis file.
    @ivar cards: the cards, in the engine's order of the validators.
    """

    genesis: bytes
    cards: Sequence[Card]


def found(cards: Iterable[Card]) -> Founding:
    """
    Found a network.

    @param cards: those of all its first validators; the same one may come twice.
    @raise CardInvalid: they do not fit together.
    """
    distinct = {card.signature: card for card in cards}.values()
    ordered = sorted(distinct, key=lambda card: addressOf(card.key))
    if not 1 <= len(ordered) <= chain.MAX_VALIDATORS:
        raise CardInvalid(f"a network has 1 to {chain.MAX_VALIDATORS} validators")
    names = {card.chain for card in ordered}
    if len(names) > 1:
        raise CardInvalid(f"the cards are of several chains: {', '.join(sorted(names))}")
    for what, read in _DISTINCT:
        _checkDistinct(ordered, what, read)
    genesis = Genesis(
        genesisTime=Instant(max(card.made for card in ordered) * _MILLISECONDS),
        chainId=ordered[0].chain,
        validators=tuple(makeValidator(card.key, 1, card.name) for card in ordered),
    )
    return Founding(genesis=encodeGenesis(genesis, BLOCK_BYTES), cards=ordered)


def _checkDistinct(cards: Sequence[Card], what: str, read: Callable[[Card], object]) -> None:
    seen: dict[object, Card] = {}
    for card in cards:
        other = seen.setdefault(read(card), card)
        if other is not card:
            raise CardInvalid(
                f"{other.name} and {card.name} have the same {what}: each node makes its own card, "
                "and the latest of it counts"
            )


_DISTINCT: Final[Sequence[tuple[str, Callable[[Card], object]]]] = (
    ("validator's key", lambda card: card.validator),
    ("node's key", lambda card: card.nodeId),
    ("broker's key", lambda card: card.broker),
    ("name", lambda card: card.name),
    ("address", lambda card: card.p2p),
)


def ourGenesis(genesis: Genesis) -> chain.Genesis:
    """Our chain's genesis, which follows from the engine's."""
    return chain.Genesis(
        group=genesis.chainId,
        created=genesis.genesisTime // _MILLISECONDS,
        validators=tuple(member.key for member in genesis.members),
    )
