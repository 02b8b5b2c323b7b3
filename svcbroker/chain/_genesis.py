"""
The genesis of a chain: its group, its validators, the time of its making and its rule of topics.

B{Frozen bytes}: its encoding and hash, which is the chain's id, pinned by C{genesis}, also of
C{format4}, in C{docs/vectors/chain.json}.
"""

from __future__ import annotations

from hashlib import sha256

from attrs import field, frozen

from ..model import TopicRule
from ._claims import KeySource
from ._encoding import U16, U64, Malformed, Reader, VersionUnknown
from ._header import Header
from ._history import History
from ._merkle import EMPTY_ROOT
from ._state import EMPTY_STATE_ROOT, ChainState
from ._validators import KEY_SIZE, MAX_VALIDATORS, ValidatorSet

_TAG = b"svcbroker/genesis"
_PLAIN, _RULED = b"\x01", b"\x02"
"""Version 2 ends with a byte that says its rules; 1 is names of topics in UTF-8."""
_UTF8 = b"\x01"
_NO_PARENT = bytes(32)


@frozen(kw_only=True)
class Genesis:
    """
    The beginning of a chain, on which all its validators agree before the first block.

    @ivar group: the id of the group whose log the chain is.
    @ivar created: when it was made, in milliseconds since the epoch.
    @ivar validators: the Ed25519 public keys (32 bytes each) of its first validators, in the order
        of their indexes.
    @ivar topics: the rule of its topics' names.
    @ivar encoded: its canonical encoding.
    @ivar chain: the chain's id: the hash of the encoding.
    """

    group: str
    created: int
    validators: tuple[bytes, ...]
    topics: TopicRule = TopicRule.PUBLISHED
    encoded: bytes = field(init=False, repr=False, eq=False)
    chain: bytes = field(init=False, eq=False)

    @encoded.default
    def _encode(self) -> bytes:
        group = self.group.encode("utf-8")
        version, rules = _PLAIN, b""
        if self.topics is TopicRule.UTF8:
            version, rules = _RULED, _UTF8
        return b"".join(
            (
                _TAG,
                version,
                U16.pack(len(group)),
                group,
                U64.pack(self.created),
                U16.pack(len(self.validators)),
                *self.validators,
                rules,
            )
        )

    @chain.default
    def _chain(self) -> bytes:
        return sha256(self.encoded).digest()

    @classmethod
    def decode(cls, data: bytes) -> Genesis:
        """
        Read a genesis.

        @raise Malformed: the bytes are not one.
        """
        reader = Reader(data)
        if reader.take(len(_TAG)) != _TAG:
            raise Malformed("this is not a genesis")
        version = reader.take(1)
        if version not in (_PLAIN, _RULED):
            raise VersionUnknown("this is not a genesis of a known version")
        group = reader.text(reader.number(U16))
        created = reader.number(U64)
        count = reader.number(U16)
        validators = tuple(reader.take(KEY_SIZE) for _ in range(count))
        topics = TopicRule.PUBLISHED
        if version == _RULED:
            if reader.take(1) != _UTF8:
                raise VersionUnknown("the genesis has a rule that only a newer svcbroker knows")
            topics = TopicRule.UTF8
        reader.finish()
        if not 1 <= count <= MAX_VALIDATORS:
            raise Malformed(f"a genesis names 1 to {MAX_VALIDATORS} validators, not {count}")
        if len(set(validators)) != count:
            # One key under two indexes would count twice in every certificate.
            raise Malformed("a genesis names one validator twice")
        return cls(group=group, created=created, validators=validators, topics=topics)

    @property
    def validatorSet(self) -> ValidatorSet:
        """The set that decides the first block."""
        return ValidatorSet(0, self.validators)

    def state(self, keys: KeySource | None = None) -> ChainState:
        """
        The state that the first block finds.

        @param keys: see L{ChainState}.
        """
        history = History.of([self.header().hash])
        return ChainState(self.chain, self.validatorSet, history, keys=keys, topicRule=self.topics)

    def header(self) -> Header:
        """The header of height 0, which the first block has as its parent."""
        return Header(
            chain=self.chain,
            height=0,
            parent=_NO_PARENT,
            history=EMPTY_ROOT,
            view=0,
            proposer=0,
            timestamp=self.created,
            transactionRoot=EMPTY_ROOT,
            receiptRoot=EMPTY_ROOT,
            stateRoot=EMPTY_STATE_ROOT,
            validators=self.validatorSet.hash,
            nextValidators=self.validatorSet.hash,
            transactionCount=0,
            transactionTotal=0,
        )
