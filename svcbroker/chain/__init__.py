"""
The replicated state machine: what a block is, and what it does to the topics.

Deterministic and pure: no clock, no randomness, no input or output, no Twisted. The same
transactions give the same bytes and hashes on any machine, so every ledger that replicates by
blocks runs this code unchanged. C{docs/chain.rst} is its specification.
"""

from ._accounts import NONCE_WINDOW, Account
from ._address import accountAddress, keyAddress, topicAddress
from ._block import (
    Candidate,
    InvalidBlock,
    checkBlock,
    proposeBlock,
    selectTransactions,
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
from ._execution import PrefixConflict
from ._genesis import Genesis
from ._header import Header, leaderIndex
from ._history import History, HistoryNode, NodeSource, historyPath
from ._merkle import MerkleTree, leafHash, merklePath, merkleRoot, rootOfPath
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
from ._transaction import (
    MAX_HEAD_SIZE,
    Kind,
    Transaction,
    TransactionSummary,
    decodeBody,
    decodeTable,
    encodeBody,
    tableSize,
    transactionHashes,
)
from ._validators import (
    MAX_VALIDATORS,
    ChangeRefused,
    ValidatorChange,
    ValidatorSet,
    changePayload,
    verifySignature,
)

__all__ = [
    "MAX_HEAD_SIZE",
    "MAX_VALIDATORS",
    "NONCE_WINDOW",
    "RECEIPT_SIZE",
    "Account",
    "BodyTable",
    "Candidate",
    "Certificate",
    "CertificateInvalid",
    "ChainState",
    "ChangeRefused",
    "Genesis",
    "Header",
    "History",
    "HistoryNode",
    "InvalidBlock",
    "Kind",
    "Malformed",
    "MerkleTree",
    "NodeSource",
    "Outcome",
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
    "bodyCount",
    "changePayload",
    "checkBlock",
    "checkCertificate",
    "decodeBody",
    "decodeReceipts",
    "decodeTable",
    "encodeBody",
    "encodeReceipts",
    "faultsTolerated",
    "historyPath",
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
    "tableSize",
    "topicAddress",
    "transactionHashes",
    "verifySignature",
    "votePayload",
]
