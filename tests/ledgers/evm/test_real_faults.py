"""
The ledger on a real node that does wrong, and on a network of several brokers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.trial.unittest import TestCase

from svcbroker.archive import JOURNAL_NAME
from svcbroker.errors import LedgerUnavailable
from svcbroker.ledgers.evm import EvmLedger, checkInstalled
from svcbroker.ledgers.evm._contract import attestCall, submitCall
from svcbroker.ledgers.evm._ethereum import EvmAccount
from svcbroker.ledgers.evm._evmrpc import sendCall, todata
from svcbroker.ledgers.evm.operating import ContractOwner
from svcbroker.model import EventId, Execution, OpenTopic, PublishEvent, Receipt
from svcbroker.net.deferreds import asDeferred
from tests.waiting import until

from .nodes import Chain, Geth, Validators, contextOf, reactor

skip = checkInstalled() or None


class _Killed(Exception):
    """The process has ended."""


class _Death:
    """
    The end of a process at one of its steps: after it nothing goes to the disk or to the chain.

    @ivar isDead: whether it has come.
    """

    def __init__(self, step: int) -> None:
        """
        @param step: how many steps are made before.
        """
        self._left = step
        self.isDead = False

    def step(self) -> None:
        """Make a step, or die."""
        self.isDead = self.isDead or not self._left
        if self.isDead:
            raise _Killed
        self._left -= 1

    def around(self, call: Any) -> Any:
        """A call with a step before it and one after it."""

        async def made(*args: Any) -> Any:
            self.step()
            result = await call(*args)
            self.step()
            return result

        return asDeferred(made)


class BrokersTestCase(TestCase):
    """
    One node, and brokers on one contract.
    """

    makeChain: type[Chain] = Chain

    async def begin(self, brokers: int = 1, *options: str, **settings: Any) -> list[EvmLedger]:
        """Start a node, and ledgers with accounts of their own."""
        self.chain = self.makeChain(self)
        await self.chain.start(*options)
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.accounts = [
            EvmAccount.create(self.directory / f"{index}.key", os.urandom)
            for index in range(brokers)
        ]
        await self.chain.deploy(self.accounts)
        ledgers = [self.makeLedger(index, **settings) for index in range(brokers)]
        for ledger in ledgers:
            await ledger.start()
        await self.publish(ledgers[0], OpenTopic(topic="t"))
        sender: Any = ledgers[0]._sender
        await until(lambda: not sender.underWay)
        return ledgers

    def makeLedger(self, index: int, **settings: Any) -> EvmLedger:
        """The ledger of one broker, not started."""
        key = self.directory / f"{index}.key"
        context = contextOf(self.directory / str(index))
        ledger = EvmLedger(context, self.chain.settings(key, **settings))
        self.addCleanup(ledger.stop)
        return ledger

    async def publish(self, ledger: EvmLedger, *requests: Any) -> list[Any]:
        """The outcomes of some requests."""
        submission = ledger.submitMany(requests)
        await submission.done
        return list(submission.outcomes)

    async def contents(self, ledger: EvmLedger) -> list[bytes]:
        """The contents of all events, in order."""
        height = (await ledger.getStatistics()).height
        found = []
        for each in range(1, height + 1):
            found += [event.content for event in (await ledger.readBlock(each)).events]
        return found

    async def caughtUp(self, ledger: EvmLedger, contents: list[bytes]) -> None:
        """Wait until a ledger has some events, and compare."""

        async def hasAll() -> bool:
            return len(await self.contents(ledger)) >= len(contents)

        await until(hasAll)
        self.assertEqual(await self.contents(ledger), contents)

    async def reason(self, ledger: EvmLedger, words: str) -> None:
        """Wait until a ledger is not ready, for a reason with some words."""

        async def tells() -> bool:
            return words in (await ledger.getHealth()).reason

        await until(tells)

    async def untilPublished(self, ledger: EvmLedger, content: bytes) -> EventId:
        """Publish until it is taken."""
        taken: list[EventId] = []

        async def isTaken() -> bool:
            request = PublishEvent(topic="t", content=content)
            [outcome] = await self.publish(ledger, request)
            if isinstance(outcome, Receipt) and outcome.eventId is not None:
                taken.append(outcome.eventId)
            return bool(taken)

        await until(isTaken)
        return taken[0]


class BrokersTests(BrokersTestCase):
    """Several brokers, on any node."""

    @asDeferred
    async def test_brokersHaveOneLog(self) -> None:
        """What one broker publishes all others have, with the same ids and block hashes."""
        first, second, third = await self.begin(3)
        for number in range(4):
            for ledger in (first, second):
                [receipt] = await self.publish(
                    ledger, PublishEvent(topic="t", content=b"%d" % number)
                )
                self.assertIs(receipt.execution, Execution.DONE)
        expected = [b"%d" % number for number in range(4) for _ in range(2)]
        for ledger in (first, second, third):
            await self.caughtUp(ledger, expected)
        tips = {str(await ledger.getCheckpoint(9)) for ledger in (first, second, third)}
        self.assertEqual(len(tips), 1)

    @asDeferred
    async def test_expectedNumbersDecideBetweenBrokers(self) -> None:
        """Of two publishes on two brokers that expect one number, one is executed."""
        first, second = await self.begin(2)
        await self.caughtUp(second, [])
        wanted = PublishEvent(topic="t", content=b"x", expectedSequence=0)
        one, two = first.submitMany([wanted]), second.submitMany([wanted])
        await one.done
        await two.done
        executions = {each.outcomes[0].execution for each in (one, two)}  # type: ignore[union-attr]
        self.assertEqual(len(executions), 2)
        self.assertIn(Execution.DONE, executions)

    @asDeferred
    async def test_startedAgainLedgerHasItsEvents(self) -> None:
        """A ledger that starts again goes on where it was, also while no node answers."""
        [ledger] = await self.begin(1)
        [receipt] = await self.publish(ledger, PublishEvent(topic="t", content=b"x"))
        await ledger.stop()
        again = self.makeLedger(0, endpoint=("http://127.0.0.1:9",))
        await again.start()
        event = await again.getEvent(receipt.eventId)
        self.assertEqual(event.content, b"x")
        await self.reason(again, "cannot be reached")

    @asDeferred
    async def test_secondEndpointIsUsed(self) -> None:
        """Where one node does not answer, the next one is asked."""
        [ledger] = await self.begin(1)
        await ledger.stop()
        again = self.makeLedger(0, endpoint=("http://127.0.0.1:9", self.chain.url))
        await again.start()
        await self.untilPublished(again, b"x")

    @asDeferred
    async def test_accountThatIsNotAllowedIsTold(self) -> None:
        """An account whose allowance is taken away is told so, and goes on when it is back."""
        [ledger] = await self.begin(1)
        owner = ContractOwner(clock=reactor, rpc=self.chain.rpc, account=self.chain.owner)
        address = self.accounts[0].address
        await owner.allow(self.chain.contract, address, isAllowed=False)
        [outcome] = await self.publish(ledger, PublishEvent(topic="t", content=b"x"))
        self.assertIsInstance(outcome, LedgerUnavailable)
        await self.reason(ledger, "does not allow account")
        await owner.allow(self.chain.contract, address, isAllowed=True)
        await self.untilPublished(ledger, b"y")
        self.assertEqual(await self.contents(ledger), [b"y"])

    @asDeferred
    async def test_usedNonceIsReplaced(self) -> None:
        """A transaction whose nonce somebody else has used gets the next one."""
        [ledger] = await self.begin(1)
        account = self.accounts[0]
        sender: Any = ledger._sender
        foreign = account.sign(
            chainId=self.chain.id,
            nonce=sender._next,
            gasPrice=self.chain.gasPrice,
            gas=200_000,
            to=self.chain.contract,
            data=attestCall(10**6, b"\x01" * 32),
        )
        await self.chain.rpc.ask(sendCall(foreign.raw))
        [receipt] = await self.publish(ledger, PublishEvent(topic="t", content=b"x"))
        self.assertIs(receipt.execution, Execution.DONE)
        self.assertEqual(await self.contents(ledger), [b"x"])

    @asDeferred
    async def test_foreignBatchesAreNotExecuted(self) -> None:
        """Batches of allowed accounts that are none are passed over by all brokers alike."""
        first, second = await self.begin(2)
        nonce: Any = second._sender
        for number, data in enumerate((b"", b"\x02" + first.chain + b"no deflate", os.urandom(99))):
            foreign = self.accounts[1].sign(
                chainId=self.chain.id,
                nonce=nonce._next + number,
                gasPrice=self.chain.gasPrice,
                gas=300_000,
                to=self.chain.contract,
                data=submitCall(data),
            )
            await self.chain.rpc.ask(sendCall(foreign.raw))
        await self.untilPublished(first, b"x")
        for ledger in (first, second):
            await self.caughtUp(ledger, [b"x"])
        height = (await first.getStatistics()).height
        self.assertEqual(await first.getCheckpoint(height), await second.getCheckpoint(height))

    @asDeferred
    async def test_attestationsAgree(self) -> None:
        """Brokers attest the same blocks, and proofs lead to what more than two thirds attest."""
        first, second = await self.begin(2, attest=3)
        receipts: list[Any] = []
        for number in range(5):
            receipts += await self.publish(first, PublishEvent(topic="t", content=b"%d" % number))
        for ledger in (first, second):
            await until(lambda ledger=ledger: ledger._attestations.agreed >= 6)  # type: ignore[misc]

        def isMeasured() -> bool:
            chain = second.measure().chain
            assert chain is not None
            found = (chain.behind, chain.underWay, chain.attested)
            return found == (0, 0, 6) and chain.height > 6 and chain.balance is not None

        await until(isMeasured)
        proof = await second.prove(receipts[0].eventId, None)
        assert proof.checkpoint is not None
        self.assertEqual(proof.checkpoint.header.height, 6)

    @asDeferred
    async def test_otherExecutionIsFound(self) -> None:
        """A broker whose block has another hash than the others have attested says so."""
        first, second, third = await self.begin(3, attest=4)
        second._attestations._waiting[4] = b"\x07" * 32
        for number in range(4):
            await self.publish(first, PublishEvent(topic="t", content=b"%d" % number))
        await until(lambda: third._attestations.agreed == 4)
        second._attestations._waiting[4] = b"\x07" * 32
        await self.reason(second, "have attested")
        self.flushLoggedErrors()


class GethTests(BrokersTests):
    """The same, on geth."""

    makeChain = Geth


class ValidatorTests(BrokersTestCase):
    """Brokers on four IBFT validators, of which some are killed."""

    makeChain = Validators
    # Rounds take longer one after the other while validators are missing.
    timeout = 600

    @asDeferred
    async def test_killedValidatorsLoseNothing(self) -> None:
        """With one validator killed, which a broker has asked, all goes on. With two, nothing is
        final; when they are back, what waited is, on all brokers alike."""
        first, second = await self.begin(2)
        chain = self.chain
        assert isinstance(chain, Validators)
        await chain.kill(0)
        await self.publish(first, PublishEvent(topic="t", content=b"a"))
        await self.publish(second, PublishEvent(topic="t", content=b"b"))
        await chain.kill(1)
        sender: Any = first._sender
        # Nothing is taken while a node that it has asked does not answer.
        await until(lambda: not sender.reason)
        waiting = first.submitMany([PublishEvent(topic="t", content=b"c")])
        await until(lambda: bool(sender.underWay))
        self.assertFalse(waiting.done.called)
        for index in range(2):
            chain.run(index)
        await waiting.done
        for ledger in (first, second):
            await self.caughtUp(ledger, [b"a", b"b", b"c"])
        tips = {str(await ledger.getCheckpoint(4)) for ledger in (first, second)}
        self.assertEqual(len(tips), 1)


class FaultTests(BrokersTestCase):
    """What a node can be made to do wrong."""

    @asDeferred
    async def test_droppedTransactionIsSentAgain(self) -> None:
        """A transaction that the node forgets is sent again, and executed once."""
        [ledger] = await self.begin(1)
        await self.chain.ask("evm_setAutomine", False)
        submission = ledger.submitMany([PublishEvent(topic="t", content=b"x")])
        sender: Any = ledger._sender
        await until(lambda: any(each.due for each in sender._sent))
        for each in sender._sent:
            await self.chain.ask("anvil_dropTransaction", todata(each.transaction.hash))
            each.due = 0.0
        sender._wake(0)
        await until(lambda: any(each.due for each in sender._sent))
        await self.chain.ask("evm_mine")
        await submission.done
        self.assertEqual(await self.contents(ledger), [b"x"])

    @asDeferred
    async def test_killedBrokerSendsWhatItsJournalHas(self) -> None:
        """What was in the journal is sent after a start, whether a node had it or not; once."""
        [ledger] = await self.begin(1)
        await self.chain.ask("evm_setAutomine", False)
        ledger.submitMany([PublishEvent(topic="t", content=b"x")])
        sender: Any = ledger._sender
        await until(lambda: any(each.due for each in sender._sent))
        [kept] = [each.transaction for each in sender._sent]
        journal = self.directory / "0" / JOURNAL_NAME
        [path] = journal.iterdir()
        await ledger._close()
        self.assertEqual(path.read_bytes(), kept.raw)
        await self.chain.ask("anvil_dropTransaction", todata(kept.hash))
        again = self.makeLedger(0)
        await again.start()
        sender = again._sender
        await until(lambda: any(each.due for each in sender._sent))
        await self.chain.ask("evm_mine")
        await self.chain.ask("evm_setAutomine", True)
        await self.caughtUp(again, [b"x"])
        [receipt] = await self.publish(again, PublishEvent(topic="t", content=b"y"))
        self.assertIs(receipt.execution, Execution.DONE)
        self.assertEqual(await self.contents(again), [b"x", b"y"])
        await until(lambda: not list(journal.iterdir()))

    def mortal(self, death: _Death) -> EvmLedger:
        """The ledger of the first broker, which dies."""
        fsync, unlink = os.fsync, Path.unlink

        def dyingSync(descriptor: int) -> None:
            death.step()
            fsync(descriptor)

        def dyingUnlink(path: Path, **options: Any) -> None:
            if path.suffix == ".tx":
                death.step()
            unlink(path, **options)

        self.patches = [self.patch(os, "fsync", dyingSync), self.patch(Path, "unlink", dyingUnlink)]
        context = contextOf(self.directory / "0")
        context = evolve(context, runBriefly=death.around(context.runInThread))
        ledger = EvmLedger(context, self.chain.settings(self.directory / "0.key"))
        rpc: Any = ledger._rpc
        post, dyingPost = rpc._post, death.around(rpc._post)
        rpc._post = lambda body, most: (dyingPost if b"sendRawTransaction" in body else post)(
            body, most
        )
        return ledger

    @asDeferred
    async def test_killedAtAnyStepLosesNothing(self) -> None:
        """Whenever a broker is killed, between any two steps on its disk and to the chain, a client
        that publishes again with its key has one event, and the journal is done in the end."""
        [ledger] = await self.begin(1)
        await ledger.stop()
        journal = self.directory / "0" / JOURNAL_NAME
        expected: list[bytes] = []
        isKilled = True
        while isKilled:
            death = _Death(len(expected))
            ledger = self.mortal(death)
            await ledger.start()
            expected.append(b"%d" % len(expected))
            request = PublishEvent(
                topic="t", content=expected[-1], idempotencyKey=str(expected[-1])
            )
            submission = ledger.submitMany([request])
            await until(
                lambda death=death, ledger=ledger, submission=submission: (  # type: ignore[misc]
                    death.isDead or (submission.done.called and not any(journal.iterdir()))
                )
            )
            isKilled = death.isDead
            death.isDead = True
            await ledger._close()
            for patch in self.patches:
                patch.restore()
            again = self.makeLedger(0)
            await again.start()
            [receipt] = await self.publish(again, request)
            self.assertIn(receipt.execution, (Execution.DONE, Execution.PUBLISHED_BEFORE))
            self.assertEqual(await self.contents(again), expected)
            await until(lambda: not any(journal.glob("*.tx")))
            await again.stop()
        self.flushLoggedErrors(_Killed)
        # File, name and directory of the journal, the request, the block, and the journal's end.
        self.assertGreater(len(expected), 7)

    @asDeferred
    async def test_reorganizationAboveFinalityIsNotSeen(self) -> None:
        """With confirmations, blocks that are replaced before they are final change nothing, and
        what was in them is sent again."""
        [ledger] = await self.begin(1, "--block-time", "0.2", finality=3)
        await self.publish(ledger, PublishEvent(topic="t", content=b"a"))
        submission = ledger.submitMany([PublishEvent(topic="t", content=b"b")])
        sender: Any = ledger._sender
        await until(lambda: any(each.due for each in sender._sent))
        await self.chain.ask("anvil_reorg", 2, [])
        for each in sender._sent:
            each.due = 0.0
        sender._wake(0)
        await submission.done
        self.assertEqual(await self.contents(ledger), [b"a", b"b"])

    @asDeferred
    async def test_reorganizationBelowFinalityStops(self) -> None:
        """Blocks that are replaced though they were final stop the ledger, with the reason."""
        [ledger] = await self.begin(1)
        await self.publish(ledger, PublishEvent(topic="t", content=b"a"))
        await self.chain.ask("anvil_reorg", 2, [])
        await self.reason(ledger, "reorganized below the finality")
        self.assertEqual(await self.contents(ledger), [b"a"])
