"""
From a decided block to the rows that are stored of it.
"""

from __future__ import annotations

from ..chain import Candidate, Certificate
from ..storage import (
    AccountRow,
    Append,
    BlockRow,
    HistoryRow,
    TopicBlockRow,
    TopicRow,
    ValidatorsRow,
    packPositions,
)


def appendOf(candidate: Candidate, certificate: Certificate | None) -> Append:
    """
    Everything that a block changes, as the store takes it.

    @param certificate: what makes it final; C{None} where an engine keeps that.
    """
    header, outcome, offsets = candidate.header, candidate.outcome, candidate.offsets
    return Append(
        block=BlockRow(
            height=header.height,
            hash=header.hash,
            header=header.encoded,
            certificate=b"" if certificate is None else certificate.encode(),
            transactionTotal=header.transactionTotal,
            body=candidate.body,
            receipts=candidate.receipts,
        ),
        transactionHashes=[transaction.hash for transaction in candidate.transactions],
        topics=[TopicRow(index=index, topic=topic) for index, topic in outcome.topics.items()],
        accounts=[
            AccountRow(index=index, address=address, state=account.encode())
            for index, (address, account) in outcome.accounts.items()
        ],
        topicBlocks=[
            TopicBlockRow(
                topicIndex=index,
                height=header.height,
                firstSequence=outcome.topics[index].sequence - len(places) + 1,
                positions=packPositions(
                    (offsets[place], offsets[place + 1] - offsets[place]) for place in places
                ),
            )
            for index, places in outcome.published.items()
        ],
        history=[
            HistoryRow(level=level, position=position, hash=hash)
            for level, position, hash in candidate.history.completed
        ],
        validators=(
            None
            if header.validators == header.nextValidators
            else ValidatorsRow(
                generation=outcome.validators.generation,
                height=header.height,
                encoded=outcome.validators.encoded,
            )
        ),
    )
