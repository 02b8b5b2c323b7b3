"""
The form in which the test vectors of the chain are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from svcbroker.chain import (
    Candidate,
    Certificate,
    ChainState,
    Header,
    Kind,
    Nonces,
    Transaction,
    ValidatorSet,
    encodeReceipts,
    merkleRoot,
)
from svcbroker.chain._state import senderLeaf, topicLeaf
from svcbroker.model import Execution, Topic, topicPrefix
from tools.vectorcases import CHAIN, GENESIS
from tools.vectorsets import FIRST

Json = dict[str, Any]


def hexes(values: Sequence[bytes]) -> list[str]:
    """Some bytes as text."""
    return [value.hex() for value in values]


def transactionVector(name: str, transaction: Transaction) -> Json:
    """A transaction: what it says, and its bytes."""
    return {
        "name": name,
        "kind": transaction.kind.name,
        "sender": transaction.sender.hex(),
        "nonce": transaction.nonce,
        "timestamp": transaction.timestamp,
        "topic": transaction.topic,
        "content": transaction.content.hex(),
        "extensions": dict(transaction.extensions),
        "head": transaction.head.hex(),
        "hash": transaction.hash.hex(),
    }


def setVector(validators: ValidatorSet) -> Json:
    """A validator set."""
    return {
        "generation": validators.generation,
        "keys": hexes(validators.keys),
        "encoded": validators.encoded.hex(),
        "hash": validators.hash.hex(),
    }


def topicVector(topic: Topic) -> Json:
    """A topic in the state."""
    return {
        "name": topic.name,
        "address": topic.address.hex(),
        "sender": topic.sender.hex(),
        "created": topic.created,
        "isOpen": topic.isOpen,
        "sequence": topic.sequence,
        "height": topic.height,
        "leaf": topicLeaf(topic).hex(),
    }


def stateVector(topics: Sequence[Topic], accounts: Sequence[tuple[bytes, Nonces]]) -> Json:
    """A whole state and its root."""
    return {
        "topics": [topicVector(topic) for topic in topics],
        "topicRoot": merkleRoot([topicLeaf(topic) for topic in topics]).hex(),
        "accounts": [
            {
                "address": address.hex(),
                "encoded": account.encode().hex(),
                "leaf": senderLeaf(address, account).hex(),
            }
            for address, account in accounts
        ],
        "accountRoot": merkleRoot([senderLeaf(*entry) for entry in accounts]).hex(),
        "stateRoot": ChainState(CHAIN, FIRST, GENESIS.state().history, topics, accounts).root.hex(),
    }


def headerVector(header: Header) -> Json:
    """A header: its fields, its bytes, its hash."""
    return {
        "chain": header.chain.hex(),
        "height": header.height,
        "parent": header.parent.hex(),
        "history": header.history.hex(),
        "view": header.view,
        "proposer": header.proposer,
        "timestamp": header.timestamp,
        "transactionRoot": header.transactionRoot.hex(),
        "receiptRoot": header.receiptRoot.hex(),
        "stateRoot": header.stateRoot.hex(),
        "validators": header.validators.hex(),
        "nextValidators": header.nextValidators.hex(),
        "transactionCount": header.transactionCount,
        "transactionTotal": header.transactionTotal,
        "encoded": header.encoded.hex(),
        "hash": header.hash.hex(),
    }


def blockVector(candidate: Candidate, certificate: Certificate, state: ChainState) -> Json:
    """A block of the small chain, and the state after it."""
    header, receipts = candidate.header, candidate.outcome.receipts
    topics = [state.topicAt(index) for index in range(len(state._topics))]
    return {
        "header": headerVector(header),
        "transactions": [
            transactionVector("", transaction) for transaction in candidate.transactions
        ],
        "body": candidate.body.hex(),
        "receipts": [[receipt.execution.name, receipt.sequence] for receipt in receipts],
        "encodedReceipts": encodeReceipts(receipts).hex(),
        "round": certificate.round,
        "certificate": certificate.encode().hex(),
        "validators": setVector(candidate.outcome.validators),
        "eventIds": [
            f"{topicPrefix(transaction.topic)}-{receipt.sequence}-{header.height}"
            for transaction, receipt in zip(candidate.transactions, receipts, strict=True)
            if transaction.kind is Kind.PUBLISH and receipt.execution is Execution.DONE
        ],
        "state": stateVector(topics, state._senders),
    }
