"""
The genesis ceremony: join requests of the first validators, and the genesis that follows from them.

Each organisation makes a join request for its node (C{svcbroker net engine init}) and sends it to
the others. All of them assemble the same genesis from the same requests, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, TypeVar

import msgspec
from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import UNSET, Struct, UnsetType, structs

from .... import chain
from ....model import TopicRule
from ....proofs.cometbft import Instant, addressOf
from .._home import POWER, AppState, EngineGenesis, EngineKeys, publicKey
from ._engineconfig import (
    DEFAULT_PROFILE,
    PROFILES,
    Address,
    ConfigInvalid,
    Peer,
    Tuning,
    checkName,
    parseAddress,
)
from ._homelayout import encodeGenesis, makeValidator

MAX_JOIN_REQUEST: Final = 16 * 1024
"""The most bytes that a request has."""

BLOCK_BYTES: Final = 8 * 1024 * 1024
"""The most bytes of a block, in a network that begins with a genesis ceremony."""

_TAG = b"svcbroker/join-request\x01"
_MILLISECONDS = 1_000_000

T = TypeVar("T")


class JoinRequestInvalid(Exception):
    """A request that cannot be used. The text is one line for the operator."""


class JoinRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The public keys and the address of a node, signed by its validator (the C{gentx} of other
    networks).

    @ivar chain: the engines' name of the chain that it is made for.
    @ivar name: the node's name.
    @ivar nodeId: the engine's id among its peers.
    @ivar p2p: the address at which they reach it, C{host:port}.
    @ivar validator: its public key as a validator, in hexadecimal digits.
    @ivar broker: the public key of the broker beside it, in hexadecimal digits.
    @ivar timeouts: the name of the profile of timeouts, the same for all nodes.
    @ivar made: when it was made, in milliseconds since the epoch.
    @ivar topics: the rule of topics' names, the same for all nodes; absent for that of the
        published interface.
    @ivar signature: the validator's signature over all other fields.
    """

    kind: Literal["svcbroker-join-request"] = "svcbroker-join-request"
    chain: str
    name: str
    nodeId: str
    p2p: str
    validator: str
    broker: str
    timeouts: str
    made: int
    topics: Literal["utf8"] | UnsetType = UNSET
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
    def tuning(self) -> Tuning:
        """The engine's timeouts and bounds."""
        return PROFILES[self.timeouts]

    @property
    def payload(self) -> bytes:
        """The bytes that are signed."""
        return _TAG + msgspec.json.encode(structs.replace(self, signature=""))


def makeJoinRequest(
    seed: bytes,
    keys: EngineKeys,
    *,
    chain: str,
    name: str,
    p2p: Address,
    broker: bytes,
    timeouts: str = DEFAULT_PROFILE,
    topics: TopicRule = TopicRule.PUBLISHED,
    now: float,
) -> JoinRequest:
    """
    The request of a node.

    @param seed: the validator's private key.
    @param broker: the public key of the broker beside it.
    @param timeouts: the name of one of L{PROFILES}.
    @param topics: the rule of topics' names.
    @param now: seconds since the epoch.
    @raise ConfigInvalid: a name cannot be one.
    """
    request = JoinRequest(
        chain=checkName(chain, "the chain"),
        name=checkName(name, "the node"),
        nodeId=keys.nodeId,
        p2p=str(p2p),
        validator=publicKey(seed).hex(),
        broker=broker.hex(),
        timeouts=timeouts,
        made=int(now * 1000),
        topics="utf8" if topics is TopicRule.UTF8 else UNSET,
        signature="",
    )
    signature = Ed25519PrivateKey.from_private_bytes(seed).sign(request.payload)
    return structs.replace(request, signature=signature.hex())


def encodeJoinRequest(request: JoinRequest) -> bytes:
    """The file of a join request."""
    return msgspec.json.format(msgspec.json.encode(request), indent=2) + b"\n"


def readJoinRequest(data: bytes) -> JoinRequest:
    """
    Read a request, and make sure that the validator's owner has made it.

    @raise JoinRequestInvalid: it is none, or was changed.
    """
    if len(data) > MAX_JOIN_REQUEST:
        raise JoinRequestInvalid(f"is larger than {MAX_JOIN_REQUEST} bytes")
    try:
        request = msgspec.json.decode(data, type=JoinRequest)
        checkName(request.chain, "the chain")
        checkName(request.name, "the node")
        parseAddress(request.p2p)
        key, signature = _digits(request.validator, 32), _digits(request.signature, 64)
        _digits(request.broker, 32)
        _digits(request.nodeId, 20)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise JoinRequestInvalid(f"is not a join request: {error}") from None
    except (ConfigInvalid, ValueError) as error:
        raise JoinRequestInvalid(str(error)) from None
    if request.timeouts not in PROFILES:
        raise JoinRequestInvalid(f"has unknown timeouts: {request.timeouts[:50]!r}")
    if not 0 <= request.made < 2**53:
        raise JoinRequestInvalid("was made at no time")
    if not chain.verifySignature(key, request.payload, signature):
        raise JoinRequestInvalid("was changed after it was made: its signature does not hold")
    return request


def _digits(text: str, size: int) -> bytes:
    value = bytes.fromhex(text)
    if len(value) != size or value.hex() != text:
        raise ValueError(f"has no {size} bytes in hexadecimal digits where they should be")
    return value


@frozen(kw_only=True)
class GenesisCeremony:
    """
    The beginning of a network. It follows from the join requests alone, in any order.

    @ivar genesis: the engines' genesis file.
    @ivar requests: the join requests, in the engine's order of the validators.
    """

    genesis: bytes
    requests: Sequence[JoinRequest]


def assembleGenesis(requests: Iterable[JoinRequest]) -> GenesisCeremony:
    """
    Assemble the genesis of a network.

    @param requests: those of all its first validators; duplicates of one are accepted.
    @raise JoinRequestInvalid: they do not fit together.
    """
    distinct = {request.signature: request for request in requests}.values()
    ordered = sorted(distinct, key=lambda request: addressOf(request.key))
    if not 1 <= len(ordered) <= chain.MAX_VALIDATORS:
        raise JoinRequestInvalid(f"a network has 1 to {chain.MAX_VALIDATORS} validators")
    timeouts = {request.timeouts for request in ordered}
    if len(timeouts) > 1:
        raise JoinRequestInvalid(
            f"the join requests have several timeouts: {', '.join(sorted(timeouts))}"
        )
    if len({request.topics for request in ordered}) > 1:
        raise JoinRequestInvalid("some join requests have topics=utf8, and others do not")
    names = {request.chain for request in ordered}
    if len(names) > 1:
        raise JoinRequestInvalid(
            f"the join requests are for several chains: {', '.join(sorted(names))}"
        )
    for what, read in _DISTINCT:
        _checkDistinct(ordered, what, read)
    genesis = EngineGenesis(
        genesisTime=Instant(max(request.made for request in ordered) * _MILLISECONDS),
        chainId=ordered[0].chain,
        validators=tuple(makeValidator(request.key, POWER, request.name) for request in ordered),
        appState=AppState(topics=ordered[0].topics),
    )
    return GenesisCeremony(genesis=encodeGenesis(genesis, BLOCK_BYTES), requests=ordered)


def _checkDistinct(
    requests: Sequence[JoinRequest], what: str, read: Callable[[JoinRequest], object]
) -> None:
    seen: dict[object, JoinRequest] = {}
    for request in requests:
        other = seen.setdefault(read(request), request)
        if other is not request:
            raise JoinRequestInvalid(
                f"{other.name} and {request.name} have the same {what}: each node makes its own "
                "join request, and the latest of it counts"
            )


_DISTINCT: Final[Sequence[tuple[str, Callable[[JoinRequest], object]]]] = (
    ("validator's key", lambda request: request.validator),
    ("node's key", lambda request: request.nodeId),
    ("broker's key", lambda request: request.broker),
    ("name", lambda request: request.name),
    ("address", lambda request: request.p2p),
)


def ourGenesis(genesis: EngineGenesis) -> chain.Genesis:
    """The genesis of this chain, which follows from the engine's."""
    return chain.Genesis(
        group=genesis.chainId,
        created=genesis.genesisTime // _MILLISECONDS,
        validators=tuple(member.key for member in genesis.members),
        topics=genesis.topics,
    )
