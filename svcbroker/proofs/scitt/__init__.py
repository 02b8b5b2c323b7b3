"""
SCITT: Signed Statements and the receipts of transparency services (RFC 9943, RFC 9942), verified
offline and signed, and the registration of statements by a policy. It needs the extra C{scitt}.

The services may be anybody's: what is trusted are keys that the verifier has from elsewhere. An
entry of a service's tree is the statement with an empty unprotected header, or the hash of that.
"""

from ._chains import Root, readRoots
from ._cose import MAX_HEADER, MAX_MESSAGE, CoseKey, CoseMessage, decodeCbor, encodeKeys, readKeys
from ._didweb import DidKeys, documentUrl, keysInDocument
from ._receipts import (
    MAX_RECEIPTS,
    Claims,
    ConsistencyReceipt,
    HashEnvelope,
    InclusionReceipt,
    KeyUnknown,
    ServiceKey,
    SignedStatement,
    Signing,
    TreeLine,
    VerifiedReceipt,
    WitnessedTree,
    readTrees,
    receiptsOf,
    treesOf,
    verifyGrowth,
    verifyReceipts,
    verifyWitnessedTree,
)
from ._registration import (
    ANCHORS_TYPE,
    KEY_TOPIC,
    MAX_ISSUERS,
    MAX_ROOTS,
    MAX_VERIFIED,
    POLICY_TYPE,
    Entry,
    Issuer,
    IssuerRoot,
    KeyRecord,
    Registration,
    RegistrationPolicy,
    StatementRefused,
    TreeAudit,
)

__all__ = [
    "ANCHORS_TYPE",
    "KEY_TOPIC",
    "MAX_HEADER",
    "MAX_ISSUERS",
    "MAX_MESSAGE",
    "MAX_RECEIPTS",
    "MAX_ROOTS",
    "MAX_VERIFIED",
    "POLICY_TYPE",
    "Claims",
    "ConsistencyReceipt",
    "CoseKey",
    "CoseMessage",
    "DidKeys",
    "Entry",
    "HashEnvelope",
    "InclusionReceipt",
    "Issuer",
    "IssuerRoot",
    "KeyRecord",
    "KeyUnknown",
    "Registration",
    "RegistrationPolicy",
    "Root",
    "ServiceKey",
    "SignedStatement",
    "Signing",
    "StatementRefused",
    "TreeAudit",
    "TreeLine",
    "VerifiedReceipt",
    "WitnessedTree",
    "decodeCbor",
    "documentUrl",
    "encodeKeys",
    "keysInDocument",
    "readKeys",
    "readRoots",
    "readTrees",
    "receiptsOf",
    "treesOf",
    "verifyGrowth",
    "verifyReceipts",
    "verifyWitnessedTree",
]
