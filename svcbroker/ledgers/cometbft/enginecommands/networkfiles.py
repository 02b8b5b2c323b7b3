"""
Files that the commands about engines read and write, their errors, and their common parameters.
One kind is a change document: a change of a chain's validator set, which organisations pass on
until enough have signed. It names the current and the following set, and carries signatures over
both. Every reader verifies all of it, so the channel need not be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, TypeVar

import click
import msgspec
from attrs import evolve, frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from ....chain import (
    MAX_VALIDATORS,
    Malformed,
    ValidatorChange,
    ValidatorSet,
    changePayload,
    quorum,
    verifySignature,
)
from ....commands.arguments import PATH, ParsedType
from ....commands.inputs import readBounded
from ....commands.terminal import CommandError, Console, Exit, showRecord
from ....model import TopicRule
from .._batch import IdentityMissing, brokerSeed
from .._home import (
    GENESIS,
    EngineGenesis,
    KeyFileDamaged,
    LayoutError,
    decodeGenesis,
    publicKey,
    readValidatorSeed,
)
from ..provisioning import (
    DEFAULT_PROFILE,
    MAX_JOIN_REQUEST,
    PROFILES,
    Address,
    ConfigInvalid,
    JoinRequest,
    JoinRequestInvalid,
    ourGenesis,
    parseAddress,
    readJoinRequest,
)

MAX_DOCUMENT: Final = 256 * 1024
"""The most bytes of a document."""


class DocumentInvalid(Exception):
    """A change document that cannot be used. The text is one line for the operator."""


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The file of a document. Keys and signatures are in hexadecimal digits.

    @ivar generation: the generation of the current set.
    @ivar signatures: by the signers' keys.
    """

    kind: Literal["svcbroker-change"] = "svcbroker-change"
    chain: str
    generation: int
    current: list[str]
    following: list[str]
    signatures: dict[str, str]


@frozen(kw_only=True)
class ChangeDocument:
    """
    A change of the validator set that is being signed.

    @ivar chain: the chain's id.
    @ivar current: the set before the change.
    @ivar following: the set after the change.
    @ivar signatures: valid signatures, by public key. A validator of the current set approves by
        its signature, one of the following set accepts.
    """

    chain: bytes
    current: ValidatorSet
    following: ValidatorSet
    signatures: Mapping[bytes, bytes]

    @property
    def added(self) -> Sequence[bytes]:
        """The keys that are added."""
        return [key for key in self.following.keys if key not in self.current.keys]

    @property
    def removed(self) -> Sequence[bytes]:
        """The keys that are removed."""
        return [key for key in self.current.keys if key not in self.following.keys]

    @property
    def approvals(self) -> int:
        """The number of approvals by the current set."""
        return sum(key in self.signatures for key in self.current.keys)

    @property
    def neededApprovals(self) -> int:
        """The number of approvals that are required."""
        return quorum(len(self.current.keys))

    @property
    def missing(self) -> Sequence[bytes]:
        """The keys of the following set that have not accepted."""
        return [key for key in self.following.keys if key not in self.signatures]

    @property
    def isComplete(self) -> bool:
        """Whether the chain will accept it."""
        return self.approvals >= self.neededApprovals and not self.missing

    @property
    def payload(self) -> bytes:
        """The bytes that are signed."""
        return changePayload(self.chain, self.current, self.following)

    def sign(self, seed: bytes) -> ChangeDocument:
        """
        Add a signature.

        @param seed: the private key of a validator of one of the sets.
        @raise DocumentInvalid: the key is in neither set.
        """
        signer = Ed25519PrivateKey.from_private_bytes(seed)
        key = signer.public_key().public_bytes_raw()
        if key not in self.current.keys and key not in self.following.keys:
            raise DocumentInvalid(
                f"{key.hex()} is neither in the current set nor in the following one"
            )
        return evolve(self, signatures={**self.signatures, key: signer.sign(self.payload)})

    def toChange(self) -> ValidatorChange:
        """
        The change as the chain accepts it.

        @raise DocumentInvalid: signatures are missing.
        """
        if not self.isComplete:
            more = max(0, self.neededApprovals - self.approvals)
            missing = ", ".join(key.hex()[:12] for key in self.missing)
            raise DocumentInvalid(
                f"it is not complete: {more} more of the current set must approve, and these of "
                f"the following set must accept: {missing or 'none'}"
            )
        return ValidatorChange(
            following=self.following,
            approvals=[
                (index, self.signatures[key])
                for index, key in enumerate(self.current.keys)
                if key in self.signatures
            ],
            acceptances=[self.signatures[key] for key in self.following.keys],
        )

    def encode(self) -> bytes:
        """The file of the document."""
        file = _File(
            chain=self.chain.hex(),
            generation=self.current.generation,
            current=[key.hex() for key in self.current.keys],
            following=[key.hex() for key in self.following.keys],
            signatures={key.hex(): self.signatures[key].hex() for key in sorted(self.signatures)},
        )
        return msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n"


def proposeChange(
    chain: bytes,
    current: ValidatorSet,
    *,
    add: Collection[bytes],
    remove: Collection[bytes],
    order: Callable[[Iterable[bytes]], tuple[bytes, ...]],
) -> ChangeDocument:
    """
    Make a document without signatures.

    @param chain: the chain's id.
    @param add: public keys of validators to add.
    @param remove: public keys of validators to remove.
    @param order: sorts the keys of a set into the ledger's order.
    @raise DocumentInvalid: the change is impossible.
    """
    for key in add:
        if key in current.keys:
            raise DocumentInvalid(f"{key.hex()} is in the set already")
    for key in remove:
        if key not in current.keys:
            raise DocumentInvalid(f"{key.hex()} is not in the set")
    keys = order({*current.keys, *add} - {*remove})
    if keys == current.keys:
        raise DocumentInvalid("nothing would change")
    if not 1 <= len(keys) <= MAX_VALIDATORS:
        raise DocumentInvalid(f"a set has 1 to {MAX_VALIDATORS} validators, not {len(keys)}")
    following = ValidatorSet(current.generation + 1, keys)
    return ChangeDocument(chain=chain, current=current, following=following, signatures={})


def readChange(data: bytes) -> ChangeDocument:
    """
    Decode a document, and verify all its signatures.

    @raise DocumentInvalid: it is malformed, or was changed.
    """
    if len(data) > MAX_DOCUMENT:
        raise DocumentInvalid(f"it is larger than {MAX_DOCUMENT} bytes")
    try:
        file = msgspec.json.decode(data, type=_File)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DocumentInvalid(f"it is not a change: {error}") from None
    if not 0 <= file.generation < 2**63:
        raise DocumentInvalid("it is a change of no set")
    document = ChangeDocument(
        chain=_digits(file.chain, 32),
        current=_setOf(file.generation, file.current),
        following=_setOf(file.generation + 1, file.following),
        signatures={_digits(key, 32): _digits(each, 64) for key, each in file.signatures.items()},
    )
    if {*document.current.keys} == {*document.following.keys}:
        raise DocumentInvalid("it changes nothing")
    concerned = {*document.current.keys, *document.following.keys}
    for key, signature in document.signatures.items():
        if key not in concerned or not verifySignature(key, document.payload, signature):
            raise DocumentInvalid(f"the signature of {key.hex()} does not hold: it was changed")
    return document


def mergeChanges(documents: Sequence[ChangeDocument]) -> ChangeDocument:
    """
    Merge the signatures of copies of a document.

    @raise DocumentInvalid: they are different changes.
    """
    first, *others = documents
    signatures = dict(first.signatures)
    for other in others:
        if other.payload != first.payload:
            raise DocumentInvalid("they are different changes, or of different chains")
        signatures |= other.signatures
    return evolve(first, signatures=signatures)


def _digits(text: str, size: int) -> bytes:
    try:
        value = bytes.fromhex(text)
    except ValueError:
        value = b""
    if len(value) != size:
        raise DocumentInvalid(f"{text[:80]!r} has no {size} bytes in hexadecimal digits")
    return value


def _setOf(generation: int, keys: Sequence[str]) -> ValidatorSet:
    made = ValidatorSet(generation, tuple(_digits(key, 32) for key in keys[: MAX_VALIDATORS + 1]))
    try:
        # The same rules as on the chain.
        return ValidatorSet.decode(made.encoded)
    except Malformed as error:
        raise DocumentInvalid(str(error)) from None


JOIN_REQUEST_NAME: Final = "join-request.json"
MAX_GENESIS: Final = 16 * 1024 * 1024

T = TypeVar("T")


def loadJoinRequest(path: Path) -> JoinRequest:
    """
    Read a join request.

    @raise CommandError: it is invalid.
    """
    try:
        return readJoinRequest(readBounded(path, MAX_JOIN_REQUEST))
    except JoinRequestInvalid as error:
        raise CommandError(f"{path}: {error}", Exit.BAD) from None


def loadChange(path: Path) -> ChangeDocument:
    """
    Read a change, and verify its signatures.

    @raise CommandError: it is invalid.
    """
    try:
        return readChange(readBounded(path, MAX_DOCUMENT))
    except DocumentInvalid as error:
        raise CommandError(f"{path}: {error}", Exit.BAD) from None


def loadGenesis(path: Path) -> tuple[bytes, EngineGenesis]:
    """
    Read an engine's genesis file: its bytes, and its value.

    @raise CommandError: it is invalid.
    """
    data = readBounded(path, MAX_GENESIS)
    try:
        return data, decodeGenesis(data)
    except ValueError as error:
        raise CommandError(f"{path} is not the genesis of a network: {error}", Exit.BAD) from None


def chainOf(home: Path) -> bytes:
    """
    The id of the chain of an engine's home.

    @raise CommandError: it has no genesis.
    """
    path = home / GENESIS
    if not path.exists():
        raise CommandError(f"{home} has no genesis yet: see svcbroker net engine genesis")
    return ourGenesis(loadGenesis(path)[1]).chain


def seedOf(home: Path) -> bytes:
    """
    The private key of an engine's validator.

    @raise CommandError: it is missing or damaged.
    """
    try:
        seed = readValidatorSeed(home)
    except KeyFileDamaged as error:
        raise CommandError(str(error)) from None
    if seed is None:
        raise CommandError(f"{home} has no validator key")
    return seed


def brokerKey(dataDir: Path, group: str, entropy: Callable[[int], bytes]) -> bytes:
    """
    The public key of a broker on a group's chain; it is made if it does not exist.

    @param dataDir: the broker's data directory, which is made.
    @raise CommandError: it is damaged.
    """
    directory = dataDir / group
    for path in (dataDir, directory):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return publicKey(brokerSeed(directory, entropy))
    except IdentityMissing as error:
        raise CommandError(str(error)) from None


def keyFrom(text: str, *, chain: str | None = None) -> bytes:
    """
    A validator's public key, from 64 hexadecimal digits or the join request of its node.

    @param chain: the name that the chain of a join request must have.
    @raise CommandError: the text is neither.
    """
    key = hexKey(text)
    if key is not None:
        return key
    request = loadJoinRequest(Path(text))
    if chain not in (None, request.chain):
        raise CommandError(f"{text} is a join request for the chain {request.chain}, not {chain}")
    return request.key


def hexKey(text: str) -> bytes | None:
    """A public key in hexadecimal digits; C{None} if the text is none."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        return None
    return key if len(key) == 32 and len(text) == 64 else None


def tried(make: Callable[[], T]) -> T:
    """
    Call C{make}, and report its errors as those of the command.

    @raise CommandError: a home, a signature or a document is invalid.
    """
    try:
        return make()
    except (LayoutError, KeyFileDamaged) as error:
        raise CommandError(str(error)) from None
    except (JoinRequestInvalid, DocumentInvalid) as error:
        raise CommandError(str(error), Exit.BAD) from None


def showChange(console: Console, document: ChangeDocument, asJson: bool) -> None:
    """Show a change, and who has signed it."""
    current, following = document.current, document.following
    record = {
        "chain": document.chain.hex(),
        "generation": following.generation,
        "validators": [
            {
                "key": key.hex(),
                "isAdded": key in document.added,
                "isRemoved": key in document.removed,
                "hasSigned": key in document.signatures,
            }
            for key in [*current.keys, *document.added]
        ],
        "approvals": document.approvals,
        "neededApprovals": document.neededApprovals,
        "missing": [key.hex() for key in document.missing],
        "isComplete": document.isComplete,
    }
    showRecord(console, record, describeChange(document), asJson)


def describeChange(document: ChangeDocument) -> Sequence[str]:
    """A change in lines for people."""
    current, following = document.current, document.following
    lines = [
        f"change {following.generation} of chain {document.chain.hex()}: from "
        f"{len(current.keys)} to {len(following.keys)} validators"
    ]
    for key in [*current.keys, *document.added]:
        mark = "-" if key in document.removed else "+" if key in document.added else " "
        hasSigned = "signed" if key in document.signatures else "has not signed"
        lines.append(f"{mark} {key.hex()} {hasSigned}")
    missing = len(document.missing)
    if document.isComplete:
        lines.append("complete: it can be submitted")
    else:
        lines.append(
            f"approvals: {document.approvals} of the {document.neededApprovals} that are needed; "
            f"of the new set {missing} must still accept"
        )
    return lines


DEFAULT_RPC: Final = "127.0.0.1:26657"


def _address(text: str) -> Address:
    try:
        return parseAddress(text)
    except ConfigInvalid as error:
        raise ValueError(str(error)) from None


def _profile(text: str) -> str:
    if text not in PROFILES:
        raise ValueError(f"is not {' or '.join(PROFILES)}: {text!r}")
    return text


def _topicRule(text: str) -> TopicRule:
    try:
        return TopicRule(text)
    except ValueError:
        raise ValueError(f"is not published or utf8: {text!r}") from None


def _absolute(text: str) -> Path:
    return Path(text).absolute()


ADDRESS: Final = ParsedType("address", _address)
HOME_TYPE: Final = ParsedType("home", _absolute)

HOME: Final = click.argument("home", type=HOME_TYPE)
FILE: Final = click.argument("path", metavar="FILE", type=PATH)
REQUESTS: Final = click.argument("requests", metavar="REQUEST...", nargs=-1, type=PATH)
OUTPUT: Final = click.option(
    "--output",
    "-o",
    type=PATH,
    required=True,
    metavar="FILE",
    help="The new file to write. It is needed.",
)
TIMEOUTS: Final = click.option(
    "--timeouts",
    type=ParsedType("profile", _profile),
    default=DEFAULT_PROFILE,
    show_default=True,
    metavar="PROFILE",
    help=f"The engines' timeouts, the same for all nodes: {' or '.join(PROFILES)}.",
)
TOPICS: Final = click.option(
    "--topics",
    type=ParsedType("rule", _topicRule),
    default=TopicRule.PUBLISHED.value,
    show_default=True,
    metavar="RULE",
    help="The names that topics may have, the same for all nodes: published or utf8.",
)
NODE_OPTIONS: Final[tuple[Callable[..., object], ...]] = (
    click.option("--name", required=True, metavar="NAME", help="The node's name. It is needed."),
    click.option(
        "--p2p",
        type=ADDRESS,
        required=True,
        metavar="HOST:PORT",
        help="The address at which the other engines reach it. It is needed.",
    ),
    click.option(
        "--data-dir",
        type=PATH,
        required=True,
        metavar="DIR",
        help="The data directory of the broker beside it. It is needed.",
    ),
    click.option(
        "--group", default="1", show_default=True, metavar="ID", help="The broker's group."
    ),
)
"""Options of commands that make a node."""
LISTEN_OPTIONS: Final[tuple[Callable[..., object], ...]] = (
    click.option(
        "--listen",
        type=ADDRESS,
        metavar="HOST:PORT",
        help="Where the engine listens for peers. [default: 0.0.0.0, own port]",
    ),
    click.option(
        "--rpc",
        type=ADDRESS,
        default=DEFAULT_RPC,
        show_default=True,
        metavar="HOST:PORT",
        help="Where its RPC listens, for its broker alone.",
    ),
)
"""Options of commands that write an engine's configuration."""
