"""
Operations of the owner of a contract, a look at a chain and a contract for an operator, and the
hash of a block that the brokers of a contract have attested, for a verifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import frozen
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from ...chain import Malformed
from ...net.deferreds import asDeferred
from ...net.findings import Finding, good, problem, span, warning
from .._description import readUrl
from ._contract import (
    MAX_ACCOUNTS,
    LogState,
    accountsCall,
    allowCall,
    allowedCall,
    bornCall,
    deployment,
    readPair,
    stateCall,
)
from ._ethereum import (
    EvmAccount,
    KeyUnusable,
    SignedTransaction,
    contractAddress,
    readAddress,
    showAddress,
)
from ._evmbatch import FINALIZED
from ._evmrpc import (
    DIALECTS,
    BlockInfo,
    EvmError,
    EvmReason,
    EvmRpc,
    balanceCall,
    blockCall,
    chainIdCall,
    codeCall,
    connectChain,
    contractCall,
    gasPriceCall,
    logsCall,
    nonceCall,
    receiptCall,
    sendCall,
)
from ._evmsettings import EvmSettings
from ._sender import FIXED_GAS, gasOf
from ._stateproof import Attested, attestedHash

__all__ = [
    "DIALECTS",
    "Attested",
    "ContractOwner",
    "EvmAccount",
    "EvmError",
    "KeyUnusable",
    "attestedHash",
    "blockCall",
    "chainIdCall",
    "codeCall",
    "connectChain",
    "contractAddress",
    "examine",
    "readAddress",
    "readUrl",
    "showAddress",
]

LOOK: Final = 0.25
"""Seconds between two looks for a result."""

TIMEOUT: Final = 120.0
"""Seconds that a transaction may take to come into a block."""

MAX_SKEW: Final = 60.0
"""Seconds that the chain's last final block may be from this machine's clock."""

_DEPLOY_GAS: Final = 5_000_000


@frozen(kw_only=True)
class ContractOwner:
    """
    An account that makes a contract, or owns one.

    @ivar gasPrice: what is offered for gas, in wei; C{None} for what the node proposes.
    """

    clock: IReactorTime
    rpc: EvmRpc
    account: EvmAccount
    gasPrice: int | None = None

    @asDeferred
    async def deploy(self, accounts: Sequence[bytes]) -> bytes:
        """
        Make a contract.

        @param accounts: the addresses that it allows.
        @return: fires with its address when it is in a block.
        @raise EvmError: it cannot be made.
        """
        if len(set(accounts)) > MAX_ACCOUNTS:
            raise EvmError(EvmReason.REFUSED, f"a contract allows at most {MAX_ACCOUNTS} accounts")
        sent = await self._send(b"", deployment(sorted(set(accounts))), _DEPLOY_GAS)
        return contractAddress(self.account.address, sent.nonce)

    @asDeferred
    async def allow(self, contract: bytes, account: bytes, *, isAllowed: bool) -> None:
        """
        Allow an account to submit and to attest, or do not any more.

        @raise EvmError: the contract refused it: it has another owner, or too many accounts.
        """
        await self._send(contract, allowCall(account, isAllowed=isAllowed), FIXED_GAS)

    async def _send(self, to: bytes, data: bytes, gas: int) -> SignedTransaction:
        calls = [chainIdCall(), nonceCall(self.account.address), gasPriceCall()]
        chainId, nonce, price = await self.rpc.askAll(calls)
        signed = self.account.sign(
            chainId=chainId,
            nonce=nonce,
            gasPrice=price if self.gasPrice is None else self.gasPrice,
            gas=gas,
            to=to,
            data=data,
        )
        await self.rpc.ask(sendCall(signed.raw))
        deadline = self.clock.seconds() + TIMEOUT
        while True:
            # A node may have a transaction's receipt before the account's nonce has grown, and the
            # next transaction needs the nonce.
            results = await self.rpc.tryAll(
                [receiptCall(signed.hash), nonceCall(self.account.address)]
            )
            for each in results:
                # Some nodes know of no transaction while they begin to index them.
                if isinstance(each, EvmError) and each.reason is not EvmReason.NO_STATE:
                    raise each
            receipt, count = (None if isinstance(each, EvmError) else each for each in results)
            if receipt is not None and not receipt.isDone:
                raise EvmError(
                    EvmReason.REFUSED,
                    f"the transaction of account {showAddress(self.account.address)} was reverted",
                )
            if receipt is not None and count is not None and count > nonce:
                return signed
            if self.clock.seconds() > deadline:
                raise EvmError(EvmReason.REFUSED, f"it is in no block after {TIMEOUT:g} seconds")
            await deferLater(self.clock, LOOK)


@asDeferred
async def examine(
    reactor: Any, settings: EvmSettings, account: EvmAccount, now: float
) -> Sequence[Finding]:
    """
    The findings about a chain and a contract, as a broker needs them.

    @param now: the wall clock: seconds since the epoch.
    """
    findings: list[Finding] = []
    for url in settings.endpoint:
        dialect = DIALECTS[settings.dialect]
        rpc = connectChain(reactor, [url], dialect, settings.chainId, settings.contract)
        try:
            findings += await _examineNode(rpc, settings, account, now)
        except (EvmError, Malformed) as error:
            findings.append(
                problem(
                    *("node", f"{url}: {error}"),
                    "a broker cannot use this node",
                    "give another endpoint, or mend what it says",
                )
            )
        finally:
            await rpc.close()
    return findings


async def _examineNode(
    rpc: EvmRpc, settings: EvmSettings, account: EvmAccount, now: float
) -> Sequence[Finding]:
    address = showAddress(account.address)
    allowed, accounts, balance, price = await rpc.askAll(
        [
            contractCall(settings.contract, allowedCall(account.address)),
            contractCall(settings.contract, accountsCall()),
            balanceCall(account.address),
            gasPriceCall(),
        ]
    )
    count = int.from_bytes(accounts, "big")
    findings = [good("node", f"{rpc.url} is a node of chain {settings.chainId}")]
    findings.append(good("contract", f"it is there, and allows {count} accounts"))
    if any(allowed):
        findings.append(good("account", f"{address} may submit"))
    else:
        findings.append(
            problem(
                *("account", f"the contract does not allow {address}"),
                "nothing can be published here",
                f"have its owner run svcbroker net evm allow CONTRACT {address}",
            )
        )
    price = price if settings.gasPrice is None else settings.gasPrice
    cost = price * gasOf(bytes(96 * 1024))
    if balance >= cost:
        findings.append(good("balance", f"{address} can pay for gas at {price} wei"))
    else:
        findings.append(
            problem(
                *("balance", f"{address} has {balance} wei, and a large batch may cost {cost}"),
                "batches cannot be sent",
                "send it money, or set gas-price where gas is free",
            )
        )
    return [*findings, *await _examineFinality(rpc, settings, now)]


async def _examineFinality(rpc: EvmRpc, settings: EvmSettings, now: float) -> Sequence[Finding]:
    latest = await rpc.ask(blockCall("latest"))
    findings: list[Finding] = []
    if settings.finality == FINALIZED:
        try:
            final = await rpc.ask(blockCall(FINALIZED))
            behind = latest.height - final.height
            findings.append(good("finality", f"the final block is {behind} behind the last one"))
        except EvmError as error:
            findings.append(
                problem(
                    *("finality", f"the node has no finalized block: {error}"),
                    "nothing would become final",
                    "set finality=instant for QBFT, IBFT or FISCO-BCOS, or a number of blocks",
                )
            )
    skew = now - latest.milliseconds / 1000
    if skew >= -MAX_SKEW:
        findings.append(good("clock", f"the last block is {span(max(0.0, skew))} old"))
    else:
        findings.append(
            warning(
                *("clock", f"the last block is {span(-skew)} in the future of this machine"),
                "one of the clocks is wrong",
                "look at NTP here and on the validators",
            )
        )
    return [*findings, *await _examineLogs(rpc, settings, latest)]


async def _examineLogs(rpc: EvmRpc, settings: EvmSettings, latest: BlockInfo) -> Sequence[Finding]:
    """Whether windows of logs are cut without a word."""
    born, _ = readPair(await rpc.ask(contractCall(settings.contract, bornCall())))
    first = max(born + 1, latest.height - DIALECTS[settings.dialect].blocks + 1)
    if first > latest.height:
        return []
    before, after = (
        LogState.decode(answer)
        for answer in await rpc.askAll(
            [
                contractCall(settings.contract, stateCall(), first - 1),
                contractCall(settings.contract, stateCall(), latest.height),
            ]
        )
    )
    logs = await rpc.ask(logsCall(settings.contract, first, latest.height))
    if len(logs) == after.count - before.count:
        return [good("logs", f"windows of {latest.height - first + 1} blocks are whole")]
    return [
        warning(
            *("logs", f"of {after.count - before.count} batches the node shows {len(logs)}"),
            "windows are cut: the broker reads in smaller ones, which takes longer",
            "set dialect=fisco for FISCO-BCOS, or raise the node's bound",
        )
    ]
