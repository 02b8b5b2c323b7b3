"""
The trusted block of a node that starts from a snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from twisted.internet.defer import Deferred

from ....proofs.cometbft import LightBlock, LightBlockInvalid, Trust
from .._calls import EngineError
from .._home import Genesis


class TrustMissing(Exception):
    """No trusted block could be established. The text is one line for the operator."""


class LightSource(Protocol):
    """An engine that light blocks are fetched from."""

    def lightBlock(self, height: int) -> Deferred[LightBlock]:
        """The light block of a height."""


async def askTrust(genesis: Genesis, sources: Sequence[LightSource]) -> Trust:
    """
    Establish trust in the first block of a chain from its genesis: the first validators have
    signed it.

    @param sources: engines; all are asked, and must agree.
    @raise TrustMissing: one does not answer, or its answer is not valid.
    """
    beginning = Trust.beginning(genesis.chainId, genesis.genesisTime, genesis.members)
    found: list[Trust] = []
    for number, source in enumerate(sources, 1):
        try:
            found.append(beginning.follow(await source.lightBlock(1)))
        except EngineError as error:
            raise TrustMissing(
                f"engine {number} does not have the first block ({error}): use another engine, or "
                "give a trusted block"
            ) from error
        except LightBlockInvalid as error:
            raise TrustMissing(
                f"the first block of engine {number} does not follow from the genesis: {error}"
            ) from error
    if len({trust.hash for trust in found}) != 1:
        raise TrustMissing("the engines have different first blocks: do not join")
    return found[0]
