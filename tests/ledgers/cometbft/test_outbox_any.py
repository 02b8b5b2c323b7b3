"""
The outbox over engines that do anything that engines do.
"""

from __future__ import annotations

import random

from svcbroker.ledgers._views import eventIdsOf, receiptsOf
from svcbroker.ledgers.cometbft._batch import ChainMachine
from svcbroker.ledgers.cometbft._rpc import EngineError, Reason
from svcbroker.ledgers.replicated import BlockRefused, Code
from svcbroker.model import OpenTopic, PublishEvent, Receipt

from .members import GENESIS, KEYS, START
from .test_outbox import INTERVAL, OutboxTestCase, answer

DEEDS = ("take", "take", "lose", "full", "doubt")
"""The actions of an engine with what it is handed; in doubt, it has it, and nobody knows."""


class AnyEngineTests(OutboxTestCase):
    """
    Engines that do anything that engines do.
    """

    def test_anyEngineKeepsOrderAndExactlyOnce(self) -> None:
        """Whatever the engine does, what is in a block is answered once, nothing is sent under
        different bytes, all is executed in order, and in the end everything is."""
        for seed in range(60):
            self.setUp()
            self.runOn(random.Random(seed))

    def runOn(self, chance: random.Random) -> None:
        machine = ChainMachine(GENESIS.state(), GENESIS.header())
        pool: list[bytes] = []
        answers: dict[int, list[object]] = {}
        batchOf: dict[bytes, bytes] = {}
        executed: list[bytes] = []

        def step(isSound: bool) -> None:
            for asked, data in list(zip(self.asked, self.handed, strict=True)):
                if asked.called or (chance.random() < 0.3 and not isSound):
                    continue
                for each in self.inside(data):
                    self.assertEqual(batchOf.setdefault(each.hash, data), data)
                what = "take" if isSound else chance.choice(DEEDS)
                try:
                    machine.check(data, START)
                    code = Code.OK
                except BlockRefused as refusal:
                    code = refusal.code
                isKnown = data in pool
                if what in ("take", "doubt") and code is Code.OK and not isKnown:
                    pool.append(data)
                if what == "take" and not isKnown:
                    asked.callback(answer(code))
                else:
                    reason = {
                        "take": Reason.KNOWN,
                        "lose": Reason.UNREACHABLE,
                        "full": Reason.FULL,
                        "doubt": Reason.TIMEOUT,
                    }[what]
                    asked.errback(EngineError(reason, what))
            if not isSound and chance.random() < 0.1:
                # It starts again, and has lost what waited.
                del pool[chance.randint(0, len(pool)) :]
                if chance.random() < 0.7:
                    self.outbox.broadcastAgain()
            if chance.random() < 0.4:
                waiting = list(pool)
                if chance.random() < 0.5:
                    # It is this node's turn; whether others accept what it proposes is left open.
                    own = self.outbox.propose()
                    for data in own:
                        for each in self.inside(data):
                            self.assertEqual(batchOf.setdefault(each.hash, data), data)
                    if isSound or chance.random() < 0.7:
                        waiting += [data for data in own if data not in waiting]
                if not isSound:
                    chance.shuffle(waiting)
                    waiting = waiting[: chance.randint(0, len(waiting))]
                chosen = machine.select(waiting, chance.choice([800, 10**6]), START)
                self.assertTrue(machine.isValid(chosen, START))
                height = machine.head.height + 1
                candidate = machine.execute(chosen, height, START, KEYS[0]).candidate
                machine.apply(candidate)
                executed.extend(each.hash for each in candidate.transactions)
                pool[:] = [data for data in pool if data not in chosen]
                block = (candidate.transactions, candidate.outcome.receipts)
                ids = eventIdsOf(height, *block)
                self.outbox.committed(receiptsOf(height, *block, ids, {}))
            self.clock.advance(chance.choice([0, INTERVAL, 0.3, 2]))

        made: list[bytes] = []
        for number in range(40):
            for _ in range(chance.randint(0, 4)):
                transaction = self.broker.make(
                    PublishEvent(topic=chance.choice("ab"), content=b"")
                    if number
                    else OpenTopic(topic=chance.choice("ab"))
                )
                made.append(transaction.hash)
                results: list[object] = []
                answers[transaction.nonce] = results
                self.outbox.add([transaction]).only().addBoth(results.append)
            step(isSound=False)
        for _ in range(400):
            step(isSound=True)
        self.assertEqual(executed, made)
        self.assertEqual({len(results) for results in answers.values()}, {1})
        for results in answers.values():
            self.assertIsInstance(results[0], Receipt)
        self.assertEqual(len(self.outbox), 0)
