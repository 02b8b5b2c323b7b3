"""
Sets of validators that are asked for once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .support import recorded, recordedLightBlock
from .test_rpc import RpcCase


class KnownSetTests(RpcCase):
    """
    L{EngineRpc.lightBlocks<svcbroker.ledgers.cometbft._rpc.EngineRpc.lightBlocks>}.
    """

    def names(self) -> list[str]:
        """The names of the calls since the last time."""
        names = [name for name, _ in self.engine.calls]
        self.engine.calls.clear()
        return names

    def test_knownSetIsNotFetchedAgain(self) -> None:
        """The engine is not asked again for a set that it has named."""
        block = recordedLightBlock()
        self.assertEqual(self.answerOf(self.rpc.lightBlocks([3, 3])), [block, block])
        self.assertEqual(self.names(), ["commit", "commit", "validators"])
        self.assertEqual(self.answerOf(self.rpc.lightBlock(3)), block)
        self.assertEqual(self.names(), ["commit"])

    def test_newSetIsFetched(self) -> None:
        """It is where a header names another one."""
        changed = recorded("validators")
        changed["validators"][0]["voting_power"] = "7"

        def answer(parameters: Mapping[str, Any]) -> Any:
            return changed

        good, self.engine.answers["validators"] = self.engine.answers["validators"], answer
        self.answerOf(self.rpc.lightBlock(3))
        self.engine.answers["validators"] = good
        self.names()
        self.assertEqual(self.answerOf(self.rpc.lightBlock(3)), recordedLightBlock())
        self.assertEqual(self.names(), ["commit", "validators"])
