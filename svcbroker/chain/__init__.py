"""
The replicated state machine: what a block is, and what it does to the topics.

Deterministic and pure: no clock, no randomness, no input or output, no Twisted. The same
transactions give the same bytes and hashes on any machine, so every ledger that replicates by
blocks runs this code unchanged. C{docs/chain.rst} is its specification.
"""

from ._authorship import (
    authorsStatement,
    decodeAuthors,
    encodeAuthorChange,
    encodeAuthors,
    isSignedBy,
    openingContent,
    statement,
)
from ._body import (
    RECEIPT_SIZE,
    BodyTable,
    TransactionReceipt,
    bodyCount,
    decodeBody,
    decodeReceipts,
    decodeTable,
    encodeBody,
    encodeReceipts,
    receiptLeaf,
    receiptLeaves,
    tableSize,
    transactionHashes,
)
from ._claims import (
    KEY_WINDOW,
    ErasedRange,
    Erasure,
    Hold,
    HoldChange,
    Holds,
    KeySource,
    KeyUse,
    MemoryKeys,
    OwnedKey,
    Release,
)
from ._encoding import Malformed, VersionUnknown, accountAddress, keyAddress, topicAddress
from ._execution import (
    Candidate,
    InvalidBlock,
    checkBlock,
    execute,
    proposeBlock,
    selectTransactions,
)
from ._header import (
    OLD_FORMAT,
    Certificate,
    CertificateInvalid,
    Header,
    Phase,
    checkCertificate,
    faultsTolerated,
    joinHeader,
    leaderIndex,
    quorum,
    splitHeader,
    votePayload,
)
from ._merkle import (
    EMPTY_ROOT,
    History,
    MerkleTree,
    NodeSource,
    checkGrowth,
    growthPath,
    historyPath,
    leafHash,
    merklePath,
    merkleRoot,
    rootOfGrowth,
    rootOfPath,
)
from ._state import NONCE_WINDOW, ChainState, Genesis, Nonces, Outcome, TopicPath
from ._transaction import MAX_HEAD_SIZE, SALT_SIZE, Claims, Kind, Transaction, TransactionSummary
from ._validators import (
    MAX_VALIDATORS,
    ChangeRefused,
    ValidatorChange,
    ValidatorSet,
    changePayload,
    isUsableKey,
    verifySignature,
)
