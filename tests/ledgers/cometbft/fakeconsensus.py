"""
An engine without a network: it decides what it is told to, and asks an application as real ones
do.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred

from svcbroker.ledgers.cometbft._abciapplication import ChainApplication
from svcbroker.ledgers.cometbft._home import POWER
from svcbroker.ledgers.cometbft.abci import messages
from svcbroker.ledgers.cometbft.abci.messages import ValidatorPublicKey, ValidatorUpdate
from svcbroker.proofs.cometbft import addressOf

from .members import GENESIS, KEYS, START

NANOSECONDS = 10**6
"""Of a millisecond."""


def now(answer: Any) -> Any:
    """Return an answer that is given at once, or raise its failure."""
    results: list[Any] = []
    if isinstance(answer, Coroutine):
        answer = Deferred.fromCoroutine(answer)
    if not isinstance(answer, Deferred):
        return answer
    answer.addCallback(results.append)
    if not results:
        failures: list[Any] = []
        answer.addErrback(failures.append)
        failures[0].raiseException()
    return results[0]


def initChain(**changes: Any) -> messages.InitChainRequest:
    """The request with which a chain begins."""
    values: dict[str, Any] = {
        "time": START * NANOSECONDS,
        "chainId": GENESIS.group,
        "validators": tuple(
            ValidatorUpdate(publicKey=ValidatorPublicKey(ed25519=key), power=POWER)
            for key in KEYS[:4]
        ),
        "initialHeight": 1,
    }
    return messages.InitChainRequest(**(values | changes))


@define
class FakeConsensus:
    """
    Decides blocks, and remembers them.

    @ivar blocks: what it has decided.
    @ivar hashes: what the application said of each.
    @ivar start: what it said before them.
    @ivar later: milliseconds that have passed without a block.
    """

    blocks: list[messages.FinalizeBlockRequest] = field(factory=list)
    hashes: list[bytes] = field(factory=list)
    start: bytes = b""
    later: int = 0
    genesis: messages.InitChainRequest = field(factory=initChain)

    def decide(self, *txs: bytes, proposer: bytes = KEYS[0]) -> messages.FinalizeBlockRequest:
        """Decide a block; the application has not heard of it."""
        height = len(self.blocks) + 1
        block = messages.FinalizeBlockRequest(
            txs=txs,
            height=height,
            time=(START + height + self.later) * NANOSECONDS + 5,
            proposerAddress=addressOf(proposer),
        )
        self.blocks.append(block)
        return block

    def run(self, application: ChainApplication, *txs: bytes) -> messages.FinalizeBlockResponse:
        """Decide a block, and have it executed and committed."""
        return self.play(application, self.decide(*txs))

    def play(
        self, application: ChainApplication, block: messages.FinalizeBlockRequest
    ) -> messages.FinalizeBlockResponse:
        """Have a block executed and committed."""
        answer: messages.FinalizeBlockResponse = now(application.finalizeBlock(block))
        if block.height <= len(self.hashes):
            assert self.hashes[block.height - 1] == answer.appHash, "another state"
        else:
            self.hashes.append(answer.appHash)
        now(application.commit(messages.CommitRequest()))
        return answer

    def connect(self, application: ChainApplication) -> Sequence[int]:
        """
        Start beside an application: begin the chain, or play what the application lacks.

        @return: the heights that were played.
        """
        info: messages.InfoResponse = now(application.info(messages.InfoRequest()))
        if not info.lastBlockHeight:
            self.start = now(application.initChain(self.genesis)).appHash
        else:
            assert self.hashes[info.lastBlockHeight - 1 :][:1] in (
                [],
                [info.lastBlockAppHash],
            ), "another state"
        lacking = self.blocks[info.lastBlockHeight :]
        for block in lacking:
            self.play(application, block)
        return [block.height for block in lacking]
