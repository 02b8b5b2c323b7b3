"""
What a node that begins with a snapshot may trust.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from twisted.internet.defer import Deferred

from ....proofs.cometbft import LightBlock, LightBlockInvalid, Trust
from .._calls import EngineError
from .._home import Genesis


class TrustMissing(Exception):
    """Nothing can be trusted by what engines tell. The text is one line for the operator."""


class LightSource(Protocol):
    """An engine, as far as it is asked here."""

    def lightBlock(self, height: int) -> Deferred[LightBlock]:
        """What proves that the block of a height is final."""


async def askTrust(genesis: Genesis, sources: Sequence[LightSource]) -> Trust:
    """
    The first block of a chain, proved by the genesis alone: the first validators have signed it.

    @param sources: engines; all of them are asked, and must tell the same.
    @raise TrustMissing: one does not answer, or what it tells does not hold.
    """
    beginning = Trust.beginning(genesis.chainId, genesis.genesisTime, genesis.members)
    found: list[Trust] = []
    for number, source in enumerate(sources, 1):
        try:
            found.append(beginning.follow(await source.lightBlock(1)))
        except EngineError as error:
            raise TrustMissing(
                f"engine {number} does not tell the first block ({error}): reach it, or say which "
                "block is trusted"
            ) from error
        except LightBlockInvalid as error:
            raise TrustMissing(
                f"what engine {number} tells does not follow from the genesis: {error}"
            ) from error
    if len({trust.hash for trust in found}) != 1:
        raise TrustMissing("the engines tell different first blocks: do not join")
    return found[0]
