"""
The common part of ledgers whose blocks others decide: a network of engines, or a chain. This broker
executes what they have ordered.
"""

from ._draft import MAX_AHEAD, NEWEST, Batch, BlockDraft, BlockRefused, Code
from ._jsonrpc import (
    NoRpcAnswer,
    RpcAnswer,
    RpcCall,
    RpcRefusal,
    decodeAnswers,
    encodeCalls,
    postJson,
)
from ._pending import OVERTAKEN, PendingTransactions

__all__ = [
    "MAX_AHEAD",
    "NEWEST",
    "OVERTAKEN",
    "Batch",
    "BlockDraft",
    "BlockRefused",
    "Code",
    "NoRpcAnswer",
    "PendingTransactions",
    "RpcAnswer",
    "RpcCall",
    "RpcRefusal",
    "decodeAnswers",
    "encodeCalls",
    "postJson",
]
