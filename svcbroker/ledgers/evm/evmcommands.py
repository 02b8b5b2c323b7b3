"""
C{svcbroker net evm}: accounts and contracts for logs on an EVM chain, and a look at one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Final

import click

from ...commands.arguments import PATH, ParsedType, jsonOption, makeCommand, options, wholeNumber
from ...commands.clientcommand import runReactor
from ...commands.commandline import Command
from ...commands.terminal import CommandError, Console, Exit, showRecord
from ...interfaces import InvalidDescription
from ...net.findings import Level
from .. import readDescription
from . import checkInstalled, operating, readSettings
from .operating import ContractOwner, EvmError, KeyUnusable

_ADDRESS: Final = ParsedType("address", operating.readAddress)
_URL: Final = ParsedType("url", operating.readUrl)

_ENDPOINT: Final = click.option(
    "--endpoint",
    type=_URL,
    metavar="URL",
    required=True,
    help="The JSON-RPC of a node, or its port on this machine.",
)
_KEY: Final = click.option(
    "--key",
    type=PATH,
    metavar="FILE",
    required=True,
    help="The file with the key of the owner's account.",
)
_PASSWORD: Final = click.option(
    "--password",
    type=PATH,
    metavar="FILE",
    help="The file with the password of a key in keystore format.",
)
_GAS_PRICE: Final = click.option(
    "--gas-price",
    "gasPrice",
    type=wholeNumber(0, 2**63, "wei from 0"),
    metavar="WEI",
    help="What is offered for gas. By default what the node proposes.",
)

_ALLOW_EXAMPLE: Final = (
    "svcbroker net evm allow 0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed "
    "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359 --endpoint 8545 --key owner.key"
)


def _installed() -> None:
    missing = checkInstalled()
    if missing:
        raise CommandError(missing)


def _account(path: Path, password: Path | None) -> Any:
    _installed()
    try:
        return operating.EvmAccount.load(path, password)
    except KeyUnusable as error:
        raise CommandError(str(error)) from None


def _owned(endpoint: str, account: Any, gasPrice: int | None, work: Any) -> Any:
    """Do something as the owner of a contract."""

    async def run(reactor: Any) -> Any:
        rpc = operating.connectChain(reactor, [endpoint], operating.DIALECTS["auto"])
        owner = ContractOwner(clock=reactor, rpc=rpc, account=account, gasPrice=gasPrice)
        try:
            return await work(owner)
        finally:
            await rpc.close()

    try:
        return runReactor(run)
    except EvmError as error:
        raise CommandError(str(error), Exit.BAD) from None


@makeCommand(
    """\
    Make the key of an account, and print its address.

    The file is for its owner alone (0600).

    \b
    svcbroker net evm account broker.key
    """
)
@options(
    click.argument("file", type=PATH),
    click.option(
        "--password",
        type=PATH,
        metavar="FILE",
        help="A file with a password: makes a key in keystore format that it locks.",
    ),
    jsonOption("Print the address in JSON."),
)
def _makeAccount(console: Console, file: Path, password: Path | None, asJson: bool) -> None:
    _installed()
    try:
        account = operating.EvmAccount.create(file, os.urandom, password)
    except FileExistsError as error:
        raise CommandError(f"{error}: it is not overwritten") from None
    address = operating.showAddress(account.address)
    showRecord(console, {"address": address, "key": str(file)}, [address], asJson)


@makeCommand(
    """\
    Make the contract that keeps the log of one group, and print the description to use.

    The account of --key owns it: it may allow accounts, and not submit unless it is allowed. Where
    several organisations share the log, transfer it to a contract of theirs.

    \b
    svcbroker net evm deploy --endpoint 8545 --key owner.key
    """
)
@options(
    _ENDPOINT,
    _KEY,
    _PASSWORD,
    click.option(
        "--allow",
        "accounts",
        type=_ADDRESS,
        metavar="ADDRESS",
        multiple=True,
        help="An account of a broker, which may submit. May come again.",
    ),
    _GAS_PRICE,
    jsonOption("Print the contract in JSON."),
)
def _deploy(
    console: Console,
    endpoint: str,
    key: Path,
    password: Path | None,
    accounts: tuple[bytes, ...],
    gasPrice: int | None,
    asJson: bool,
) -> None:
    async def work(owner: ContractOwner) -> tuple[bytes, int]:
        return await owner.deploy(accounts), await owner.rpc.ask(operating.chainIdCall())

    contract, chainId = _owned(endpoint, _account(key, password), gasPrice, work)
    address = operating.showAddress(contract)
    escaped = endpoint.replace(":", "\\:")
    description = (
        f"evm:endpoint={escaped}:chain-id={chainId}:contract={address}:key=FILE:finality=FINALITY"
    )
    record = {"contract": address, "chainId": chainId, "description": description}
    lines = [
        f"contract     {address}",
        f"chain        {chainId}",
        f"description  {description}",
        "",
        "FILE is the key of a broker's account that is allowed. FINALITY is instant (QBFT, IBFT,",
        "FISCO-BCOS), finalized (proof of stake), or the number of blocks that make one final.",
    ]
    if not accounts:
        lines.append("No account may submit yet: svcbroker net evm allow.")
    showRecord(console, record, lines, asJson)


@makeCommand(
    f"""\
    Allow an account to submit to a contract, or do not any more.

    \b
    {_ALLOW_EXAMPLE}
    """
)
@options(
    click.argument("contract", type=_ADDRESS),
    click.argument("account", type=_ADDRESS),
    click.option("--remove", "isRemoved", is_flag=True, help="Do not allow it any more."),
    _ENDPOINT,
    _KEY,
    _PASSWORD,
    _GAS_PRICE,
    jsonOption("Print the account in JSON."),
)
def _allow(
    console: Console,
    contract: bytes,
    account: bytes,
    isRemoved: bool,
    endpoint: str,
    key: Path,
    password: Path | None,
    gasPrice: int | None,
    asJson: bool,
) -> None:
    async def work(owner: ContractOwner) -> None:
        await owner.allow(contract, account, isAllowed=not isRemoved)

    _owned(endpoint, _account(key, password), gasPrice, work)
    said = "is not allowed any more" if isRemoved else "is allowed"
    address = operating.showAddress(account)
    record = {"account": address, "isAllowed": not isRemoved}
    showRecord(console, record, [f"{address} {said}"], asJson)


@makeCommand(
    """\
    Say what is wrong with a chain and a contract for the ledger of a description.

    Exit codes: 0 nothing is wrong, 1 something is, 2 wrong usage.

    \b
    svcbroker net evm doctor 'evm:endpoint=8545:chain-id=1337:contract=0x...:key=...'
    """
)
@options(
    click.argument("description"),
    jsonOption("Print the findings in JSON."),
)
def _doctor(console: Console, description: str, asJson: bool) -> int:
    _installed()
    try:
        settings = readSettings(readDescription(description).settings)
    except InvalidDescription as error:
        raise CommandError(str(error)) from None
    account = _account(settings.key, settings.password)

    async def run(reactor: Any) -> Any:
        return await operating.examine(reactor, settings, account, time.time())

    findings = runReactor(run)
    record = {
        "findings": [
            {"level": each.level.value, "subject": each.subject, "text": each.text}
            for each in findings
        ]
    }
    lines = []
    for each in findings:
        lines.append(f"{each.level.value:8}  {each.subject}: {each.text}")
        if each.meaning:
            lines.append(f"{'':10}{each.meaning}: {each.remedy}")
    showRecord(console, record, lines, asJson)
    isGood = not any(each.level is Level.PROBLEM for each in findings)
    return Exit.GOOD if isGood else Exit.BAD


COMMANDS: Final = (
    Command.of("account", _makeAccount),
    Command.of("deploy", _deploy),
    Command.of("allow", _allow),
    Command.of("doctor", _doctor),
)
HELP: Final = "docs/evm.rst says more."
