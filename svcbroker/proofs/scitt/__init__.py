"""
SCITT: Signed Statements and the receipts of transparency services (RFC 9943, RFC 9942), verified
offline. It needs the extra C{scitt}.

The services may be anybody's: what is trusted are keys that the verifier has from elsewhere. An
entry of a service's tree is the statement with an empty unprotected header, or the hash of that.
"""

from ._cose import MAX_HEADER, MAX_MESSAGE, CoseKey, CoseMessage, readKeys
from ._receipts import (
    MAX_RECEIPTS,
    Claims,
    ConsistencyReceipt,
    InclusionReceipt,
    KeyUnknown,
    SignedStatement,
    VerifiedReceipt,
    receiptsOf,
    verifyGrowth,
    verifyReceipts,
)

__all__ = [
    "MAX_HEADER",
    "MAX_MESSAGE",
    "MAX_RECEIPTS",
    "Claims",
    "ConsistencyReceipt",
    "CoseKey",
    "CoseMessage",
    "InclusionReceipt",
    "KeyUnknown",
    "SignedStatement",
    "VerifiedReceipt",
    "readKeys",
    "receiptsOf",
    "verifyGrowth",
    "verifyReceipts",
]
