"""
The replicated state machine: what a block is, and what it does to the topics.

Deterministic and pure: no clock, no randomness, no input or output, no Twisted. The same
transactions give the same bytes and hashes on any machine, so every ledger that replicates by
blocks runs this code unchanged. C{docs/chain.rst} is its specification.
"""

from ._accounts import NONCE_WINDOW, Account
from ._address import accountAddress, keyAddress, topicAddress
from ._authors import (
    authorsStatement,
    decodeAuthorChange,
    decodeAuthors,
    encodeAuthorChange,
    encodeAuthors,
    isSignedBy,
    statement,
)
from ._block import (
    Candidate,
    InvalidBlock,
    checkBlock,
    proposeBlock,
    selectTransactions,
)
from ._body import (
    decodeBody,
    decodeTable,
    encodeBody,
    tableSize,
    transactionHashes,
)
from ._certificate import (
    Certificate,
    CertificateInvalid,
    Phase,
    checkCertificate,
    faultsTolerated,
    quorum,
    votePayload,
)
from ._encoding import Malformed, VersionUnknown
from ._erasure import Erasure
from ._execution import PrefixConflict
from ._genesis import Genesis
from ._head import MAX_HEAD_SIZE, Kind
from ._header import FORMAT, OLD_FORMAT, Header, leaderIndex
from ._history import History, HistoryNode, NodeSource, growthPath, historyPath
from ._keys import KEY_WINDOW, ErasedRange, KeySource, KeyUse, MemoryKeys, OwnedKey
from ._merkle import (
    EMPTY_ROOT,
    MerkleTree,
    checkGrowth,
    leafHash,
    merklePath,
    merkleRoot,
    rootOfPath,
)
from ._receipts import (
    RECEIPT_SIZE,
    TransactionReceipt,
    decodeReceipts,
    encodeReceipts,
    receiptLeaf,
    receiptLeaves,
)
from ._state import ChainState, Outcome, TopicPath
from ._table import BodyTable, bodyCount
from ._transaction import SALT_SIZE, Claims, Transaction, TransactionSummary
from ._validators import (
    MAX_VALIDATORS,
    ChangeRefused,
    ValidatorChange,
    ValidatorSet,
    changePayload,
    isUsableKey,
    verifySignature,
)

__all__ = [
    "EMPTY_ROOT",
    "FORMAT",
    "KEY_WINDOW",
    "MAX_HEAD_SIZE",
    "MAX_VALIDATORS",
    "NONCE_WINDOW",
    "OLD_FORMAT",
    "RECEIPT_SIZE",
    "SALT_SIZE",
    "Account",
    "BodyTable",
    "Candidate",
    "Certificate",
    "CertificateInvalid",
    "ChainState",
    "ChangeRefused",
    "Claims",
    "ErasedRange",
    "Erasure",
    "Genesis",
    "Header",
    "History",
    "HistoryNode",
    "InvalidBlock",
    "KeySource",
    "KeyUse",
    "Kind",
    "Malformed",
    "MemoryKeys",
    "MerkleTree",
    "NodeSource",
    "Outcome",
    "OwnedKey",
    "Phase",
    "PrefixConflict",
    "TopicPath",
    "Transaction",
    "TransactionReceipt",
    "TransactionSummary",
    "ValidatorChange",
    "ValidatorSet",
    "VersionUnknown",
    "accountAddress",
    "authorsStatement",
    "bodyCount",
    "changePayload",
    "checkBlock",
    "checkCertificate",
    "checkGrowth",
    "decodeAuthorChange",
    "decodeAuthors",
    "decodeBody",
    "decodeReceipts",
    "decodeTable",
    "encodeAuthorChange",
    "encodeAuthors",
    "encodeBody",
    "encodeReceipts",
    "faultsTolerated",
    "growthPath",
    "historyPath",
    "isSignedBy",
    "isUsableKey",
    "keyAddress",
    "leaderIndex",
    "leafHash",
    "merklePath",
    "merkleRoot",
    "proposeBlock",
    "quorum",
    "receiptLeaf",
    "receiptLeaves",
    "rootOfPath",
    "selectTransactions",
    "statement",
    "tableSize",
    "topicAddress",
    "transactionHashes",
    "verifySignature",
    "votePayload",
]
