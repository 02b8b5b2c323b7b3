"""
The contract on a real chain, and its code against what the compiler makes.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import SkipTest, TestCase

from svcbroker.ledgers.evm import _contract, checkInstalled
from svcbroker.ledgers.evm._contract import (
    LoggedBatch,
    LogState,
    accountsCall,
    allowCall,
    allowedCall,
    attestCall,
    attestedByCall,
    attestedCall,
    contractCode,
    ownerCall,
    stateCall,
    submitCall,
)
from svcbroker.ledgers.evm._ethereum import EvmAccount, selector, word
from svcbroker.ledgers.evm._evmrpc import (
    EvmError,
    blockCall,
    contractCall,
    logsCall,
    nonceCall,
    receiptCall,
    sendCall,
)
from svcbroker.ledgers.evm._sender import FIXED_GAS
from svcbroker.net.deferreds import asDeferred
from tests.waiting import until

from .nodes import Chain, Geth

skip = checkInstalled() or None

COMPILE = Path(__file__).parents[3] / "tools" / "evm" / "compile.js"


class ContractTests(TestCase):
    """A contract of an owner, with two accounts that it allows, and a stranger."""

    makeChain: type[Chain] = Chain

    async def begin(self) -> None:
        self.chain = self.makeChain(self)
        await self.chain.start()
        self.first, self.second, self.stranger = (EvmAccount(os.urandom(32)) for _ in range(3))
        await self.chain.deploy([self.first, self.second])
        await self.chain.fund([self.stranger])
        self.owner = self.chain.owner

    async def send(self, account: EvmAccount, data: bytes) -> bool:
        """Call the contract; whether it was not reverted."""
        nonce = await self.chain.rpc.ask(nonceCall(account.address))
        signed = account.sign(
            chainId=self.chain.id,
            nonce=nonce,
            gasPrice=self.chain.gasPrice,
            gas=FIXED_GAS,
            to=self.chain.contract,
            data=data,
        )
        await self.chain.rpc.ask(sendCall(signed.raw))

        async def isCounted() -> bool:
            # geth may have a receipt before the account's nonce has grown.
            return await self.chain.rpc.ask(nonceCall(account.address)) > nonce

        await until(isCounted)
        receipt = await self.chain.rpc.ask(receiptCall(signed.hash))
        assert receipt is not None
        return receipt.isDone

    async def call(self, data: bytes) -> bytes:
        """What the contract answers."""
        answer: bytes = await self.chain.rpc.ask(contractCall(self.chain.contract, data))
        return answer

    @asDeferred
    async def test_stateIsWhatBrokersCompute(self) -> None:
        """Count and hash after several batches, also empty ones, are those of the logs."""
        await self.begin()
        for account, data in ((self.first, b"a"), (self.second, b""), (self.first, b"x" * 5000)):
            self.assertTrue(await self.send(account, submitCall(data)))
        head = await self.chain.rpc.ask(blockCall("latest"))
        logs = await self.chain.rpc.ask(logsCall(self.chain.contract, 0, head.height))
        state = LogState()
        for log in logs:
            state = state.after(log.decode())
        self.assertEqual(state, LogState.decode(await self.call(stateCall())))
        self.assertEqual(state.count, 3)
        self.assertEqual(logs[1].decode(), LoggedBatch(2, self.second.address, b""))

    @asDeferred
    async def test_onlyAllowedAccountsSubmitAndAttest(self) -> None:
        """Strangers, the owner and accounts that are allowed no more change nothing."""
        await self.begin()
        attest = attestCall(7, b"\x01" * 32)
        for account in (self.stranger, self.owner):
            self.assertFalse(await self.send(account, submitCall(b"x")))
            self.assertFalse(await self.send(account, attest))
        self.assertTrue(await self.send(self.owner, allowCall(self.first.address, isAllowed=False)))
        self.assertFalse(await self.send(self.first, submitCall(b"x")))
        self.assertFalse(await self.send(self.first, attest))
        self.assertEqual(LogState.decode(await self.call(stateCall())), LogState())
        self.assertEqual(await self.call(allowedCall(self.first.address)), word(0))
        self.assertEqual(await self.call(accountsCall()), word(1))

    @asDeferred
    async def test_onlyOwnerAllowsAndTransfers(self) -> None:
        """What the owner may do nobody else may; after a transfer the new owner may."""
        await self.begin()
        allow = allowCall(self.stranger.address, isAllowed=True)
        transfer = selector("transfer(address)") + word(self.stranger.address)
        for account in (self.first, self.stranger):
            self.assertFalse(await self.send(account, allow))
            self.assertFalse(await self.send(account, transfer))
        nobody = selector("transfer(address)") + word(0)
        self.assertFalse(await self.send(self.owner, nobody))
        self.assertTrue(await self.send(self.owner, transfer))
        self.assertFalse(await self.send(self.owner, allow))
        self.assertTrue(await self.send(self.stranger, allow))
        self.assertEqual(await self.call(ownerCall()), word(self.stranger.address))

    @asDeferred
    async def test_accountsAreBounded(self) -> None:
        """No more than 64 accounts are allowed, and one is counted once."""
        await self.begin()
        for number in range(62):
            allow = allowCall(bytes([number + 1]) * 20, isAllowed=True)
            self.assertTrue(await self.send(self.owner, allow))
            self.assertTrue(await self.send(self.owner, allow))
        allow = allowCall(b"\xff" * 20, isAllowed=True)
        self.assertFalse(await self.send(self.owner, allow))
        self.assertEqual(await self.call(accountsCall()), word(64))

    @asDeferred
    async def test_twoThirdsAgreeOnHash(self) -> None:
        """A hash is attested by more than two thirds; a second one of an account does not count,
        and is shown."""
        await self.begin()
        third = EvmAccount(os.urandom(32))
        await self.chain.fund([third])
        await self.send(self.owner, allowCall(third.address, isAllowed=True))
        good, bad = b"\x01" * 32, b"\x02" * 32
        self.assertFalse(await self.send(self.first, attestCall(7, bytes(32))))
        for account, hash in (
            *((self.first, good), (self.second, bad), (self.second, good), (self.first, good)),
        ):
            self.assertTrue(await self.send(account, attestCall(7, hash)))
        self.assertEqual(await self.call(attestedByCall(7, self.second.address)), bad)
        await self.send(third, attestCall(7, good))
        self.assertEqual(await self.call(attestedCall(7)), word(0))
        for account in (self.first, self.second, third):
            await self.send(account, attestCall(8, good))
        self.assertEqual(await self.call(attestedCall(8)), good)

    @asDeferred
    async def test_noValueIsTaken(self) -> None:
        """There is no call that is not one of the contract's."""
        await self.begin()
        self.assertFalse(await self.send(self.first, b""))
        self.assertFalse(await self.send(self.first, selector("selfdestruct()")))
        with self.assertRaises(EvmError):
            await self.call(selector("upgrade(address)") + word(1))


class GethTests(ContractTests):
    """The same, on geth, with the newest forks."""

    makeChain = Geth


class CodeTests(TestCase):
    """The committed code."""

    @asDeferred
    async def test_codeIsThatOfSource(self) -> None:
        """The compiler makes of the source what is committed."""
        modules, node = os.environ.get("SVCBROKER_SOLC"), shutil.which("node")
        if not modules or node is None:
            raise SkipTest("SVCBROKER_SOLC names no folder of node modules with solc")
        source = Path(_contract.__file__).parent / "EventLog.sol"
        output, errors, code = await getProcessOutputAndValue(
            node, [str(COMPILE), str(source)], env={"NODE_PATH": modules}
        )
        self.assertEqual(code, 0, errors)
        made: Any = json.loads(output)
        self.assertEqual(made, json.loads(source.with_suffix(".json").read_text()))
        self.assertEqual(made["deployed"], contractCode().deployed)
