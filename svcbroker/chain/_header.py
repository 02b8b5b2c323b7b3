"""
Block headers.
"""

from __future__ import annotations

import struct
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import force_setattr

from ._encoding import Malformed, VersionUnknown

OLD_FORMAT = 2
FORMAT = 4
"""
The newest format. A block's transactions are of its format less 1 at most: those of format 2 of
version 1, those of format 3 of version 2 too, and those of format 4 of version 3 too.
"""

_TAG = b"svcbroker/header"
_HEADER = struct.Struct(">16sB32sQ32s32sQHQ32s32s32s32s32sIQ")


def leaderIndex(view: int, height: int, validators: int) -> int:
    """
    The index of the validator that proposes the block of a height in a view.
    """
    return (view + height) % validators


class Header(Struct, frozen=True, kw_only=True):
    """
    Everything that is said of a block, small enough to sign.

    @ivar version: the format of its block: 2, 3 or 4.
    @ivar chain: the id of its chain: the hash of the genesis.
    @ivar height: its height; genesis has 0.
    @ivar parent: the hash of the header before; zeros in genesis.
    @ivar history: the Merkle root over the hashes of all headers before, from genesis on, so
        that any of them can be proved from this one.
    @ivar view: the view in which it was first proposed. It never falls along a chain.
    @ivar proposer: the index of the validator that proposed it.
    @ivar timestamp: its time, in milliseconds since the epoch; it never falls along a chain.
    @ivar transactionRoot: the Merkle root of its transactions' hashes.
    @ivar receiptRoot: the Merkle root of how they ended.
    @ivar stateRoot: the root of the state after it.
    @ivar validators: the hash of the validator set that decides it.
    @ivar nextValidators: the hash of the set that decides the next one.
    @ivar transactionCount: how many transactions it has.
    @ivar transactionTotal: how many the chain has up to and including it.
    @ivar encoded: its canonical encoding. Computed from the other fields; a given value is ignored.
    @ivar hash: its hash: 32 bytes. Computed, too.
    """

    chain: bytes
    height: int
    parent: bytes
    history: bytes
    view: int
    proposer: int
    timestamp: int
    transactionRoot: bytes
    receiptRoot: bytes
    stateRoot: bytes
    validators: bytes
    nextValidators: bytes
    transactionCount: int
    transactionTotal: int
    version: int = OLD_FORMAT
    encoded: bytes = b""
    hash: bytes = b""

    def __post_init__(self) -> None:
        encoded = _HEADER.pack(
            _TAG,
            self.version,
            self.chain,
            self.height,
            self.parent,
            self.history,
            self.view,
            self.proposer,
            self.timestamp,
            self.transactionRoot,
            self.receiptRoot,
            self.stateRoot,
            self.validators,
            self.nextValidators,
            self.transactionCount,
            self.transactionTotal,
        )
        force_setattr(self, "encoded", encoded)
        force_setattr(self, "hash", sha256(encoded).digest())

    @classmethod
    def decode(cls, data: bytes) -> Header:
        """
        Read a header.

        @raise Malformed: the bytes are not a header; L{VersionUnknown} where they are one of
            another format.
        """
        if not data.startswith(_TAG):
            raise Malformed("this is not a header")
        format = data[len(_TAG)] if len(data) > len(_TAG) else 0
        if not OLD_FORMAT <= format <= FORMAT:
            raise VersionUnknown(f"only headers of formats {OLD_FORMAT} to {FORMAT} are known")
        if len(data) != _HEADER.size:
            raise Malformed(f"a header has {_HEADER.size} bytes, not {len(data)}")
        _, version, *fields = _HEADER.unpack(data)
        return cls(
            version=version,
            chain=fields[0],
            height=fields[1],
            parent=fields[2],
            history=fields[3],
            view=fields[4],
            proposer=fields[5],
            timestamp=fields[6],
            transactionRoot=fields[7],
            receiptRoot=fields[8],
            stateRoot=fields[9],
            validators=fields[10],
            nextValidators=fields[11],
            transactionCount=fields[12],
            transactionTotal=fields[13],
        )
