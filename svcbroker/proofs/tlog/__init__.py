"""
Transparency logs: a chain's headers as a log that anybody can follow, and that witnesses cosign.

Encodings and verification by the specifications of C2SP: signed notes, checkpoints, cosignatures,
tiles, proofs, policies and the witness protocol. No clock, no input or output, no Twisted.
"""

from ._note import (
    EXECUTED,
    MAX_NOTE_SIZE,
    KeyType,
    LogKey,
    MlDsaWitnessKey,
    Note,
    NoteSignature,
    SignatureRefused,
    VerifierKey,
    WitnessKey,
    checkName,
)
from ._policy import NONE, Party, Policy, Witnessed
from ._tiles import (
    TILE_HEIGHT,
    TILE_WIDTH,
    FetchFailed,
    LogContradiction,
    LogMonitor,
    LogReport,
    Tile,
    Tiles,
    decodeEntries,
    encodeEntries,
    encodeTile,
    hashEntries,
    neededTiles,
    parseTilePath,
    splitTile,
    tilesBetween,
)
from ._treehead import (
    MAX_REQUEST_SIZE,
    SIZE_TYPE,
    AddCheckpoint,
    CheckpointRefused,
    LogProof,
    TreeHead,
    checkCheckpoint,
    encodeHash,
    parseHash,
    parseNumber,
)
