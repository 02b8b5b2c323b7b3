"""
Proofs that an event is in a log, and that a log was only appended to.

Verifying a proof takes no broker, no network and no Twisted::

    from svcbroker.proofs import verifyProof
    event = verifyProof(Path("proof.json").read_bytes(), chain=bytes.fromhex("5fa2..."))
    print(event.topic, event.content)

C{docs/proofs.rst} is the specification.
"""

from ._certificates import (
    AnyCertificate,
    CometCertificate,
    NodeSignature,
    PbftCertificate,
    checkFinal,
    checkLightBlock,
    engineSet,
    isEngineCertificate,
    storedCertificate,
)
from ._checkpoint import Checkpoint
from ._contradictions import (
    Contradiction,
    Side,
    SignedTree,
    Statement,
    contradictionDocument,
    readStatement,
    verifyContradiction,
)
from ._events import eventFieldsOf
from ._format import (
    CERTIFIED,
    UNCERTIFIED,
    VERSIONED,
    AuthorFields,
    CheckpointFields,
    ConsistencyProof,
    ContradictionFields,
    EarlierHeader,
    EventFields,
    EventProof,
    FinalHeader,
    GenesisFields,
    HeaderFields,
    HeaderProof,
    NodeChange,
    TopicFields,
    TopicProof,
)
from ._hex import contentFields
from ._reading import (
    MAX_PROOF_SIZE,
    ProofInvalid,
    formatOf,
    readCheckpoint,
    readFields,
    readGenesis,
)
from ._topics import ProvedTopic, verifyComplete, verifyTopic
from ._verify import ProvedEvent, ProvedGrowth, verifyConsistency, verifyProof
from ._witnessed import (
    WitnessedEvent,
    WitnessedTopic,
    blockOfTopic,
    extraOf,
    verifyWitnessed,
    verifyWitnessedTopic,
)

__all__ = [
    "CERTIFIED",
    "MAX_PROOF_SIZE",
    "UNCERTIFIED",
    "VERSIONED",
    "AnyCertificate",
    "AuthorFields",
    "Checkpoint",
    "CheckpointFields",
    "CometCertificate",
    "ConsistencyProof",
    "Contradiction",
    "ContradictionFields",
    "EarlierHeader",
    "EventFields",
    "EventProof",
    "FinalHeader",
    "GenesisFields",
    "HeaderFields",
    "HeaderProof",
    "NodeChange",
    "NodeSignature",
    "PbftCertificate",
    "ProofInvalid",
    "ProvedEvent",
    "ProvedGrowth",
    "ProvedTopic",
    "Side",
    "SignedTree",
    "Statement",
    "TopicFields",
    "TopicProof",
    "WitnessedEvent",
    "WitnessedTopic",
    "blockOfTopic",
    "checkFinal",
    "checkLightBlock",
    "contentFields",
    "contradictionDocument",
    "engineSet",
    "eventFieldsOf",
    "extraOf",
    "formatOf",
    "isEngineCertificate",
    "readCheckpoint",
    "readFields",
    "readGenesis",
    "readStatement",
    "storedCertificate",
    "verifyComplete",
    "verifyConsistency",
    "verifyContradiction",
    "verifyProof",
    "verifyTopic",
    "verifyWitnessed",
    "verifyWitnessedTopic",
]
