"""
The replicated state machine: what a block is, and what it does to the topics.

Deterministic and pure: no clock, no randomness, no input or output, no Twisted. The same
transactions give the same bytes and hashes on any machine, so every ledger that replicates by
blocks runs this code unchanged. C{docs/chain.rst} is its specification.
"""

from ._address import accountAddress, topicAddress
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
from ._encoding import Malformed
from ._genesis import Genesis
from ._header import Header, leaderIndex
from ._merkle import MerkleTree, leafHash, merkleRoot
from ._receipts import TransactionReceipt, decodeReceipts, encodeReceipts
from ._state import Account, ChainState, Outcome
from ._transaction import (
    Kind,
    Transaction,
    decodeBody,
    decodeEntry,
    encodeBody,
)

__all__ = [
    "Account",
    "Candidate",
    "Certificate",
    "CertificateInvalid",
    "ChainState",
    "Genesis",
    "Header",
    "InvalidBlock",
    "Kind",
    "Malformed",
    "MerkleTree",
    "Outcome",
    "Phase",
    "Transaction",
    "TransactionReceipt",
    "accountAddress",
    "checkBlock",
    "checkCertificate",
    "decodeBody",
    "decodeEntry",
    "decodeReceipts",
    "encodeBody",
    "encodeReceipts",
    "faultsTolerated",
    "leaderIndex",
    "leafHash",
    "merkleRoot",
    "proposeBlock",
    "quorum",
    "selectTransactions",
    "topicAddress",
    "votePayload",
]
