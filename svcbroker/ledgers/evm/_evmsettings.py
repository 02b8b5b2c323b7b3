"""
The settings of the ledger on an EVM chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from attrs import frozen

from ...interfaces import InvalidDescription
from ...model import TopicRule
from ...net.descriptions import Readers, absolutePath, readValues
from .._description import TOPICS_READER, integer, number, readUrl
from ._ethereum import readAddress
from ._evmbatch import FINALIZED
from ._evmrpc import DIALECTS

_MAX_URLS: Final = 16

SUMMARY = "An EVM chain that is run already orders the blocks: Besu, GoQuorum, FISCO-BCOS, geth."

SETTINGS: Mapping[str, str] = {
    "endpoint": "the JSON-RPC of a node of the chain: a port of this machine, or a URL with a "
    "backslash before each colon; several are separated by commas, and one is used at a time "
    "(required)",
    "contract": "the address of the group's contract, which svcbroker net evm deploy makes "
    "(required)",
    "key": "the file with the key of this broker's account, which svcbroker net evm account makes "
    "(required)",
    "password": "the file with the password of a key in keystore format",
    "chain-id": "the id of the chain, which each node has to tell (required)",
    "finality": "instant (QBFT, IBFT, FISCO-BCOS), finalized (proof of stake), or the number of "
    "blocks that make one final (required)",
    "topics": "the names that topics may have, the same for all brokers of the contract: published "
    "or utf8 (default published; docs/interface.rst)",
    "dialect": f"the kind of node: {', '.join(DIALECTS)} (default auto)",
    "window": "the most transactions of this broker that wait for their blocks (default 64)",
    "attest": "blocks of the group's chain between two attestations by this broker (default 1000; "
    "0: none)",
    "gas-price": "what is offered for gas, in wei (default: what the node proposes)",
    "interval": "seconds to gather transactions into a batch (default 0.05)",
    "mempool": "bytes of transactions that may be pending (default 67108864)",
}


@frozen(kw_only=True)
class EvmSettings:
    """
    The settings of the ledger on a chain; L{SETTINGS} says what they mean.

    @ivar gasPrice: C{None} for what the node proposes.
    """

    endpoint: tuple[str, ...]
    contract: bytes
    key: Path
    chainId: int
    finality: str | int
    password: Path | None = None
    topics: TopicRule = TopicRule.PUBLISHED
    dialect: str = "auto"
    window: int = 64
    attest: int = 1000
    gasPrice: int | None = None
    interval: float = 0.05
    mempool: int = 64 * 1024 * 1024


def _urls(text: str) -> tuple[str, ...]:
    urls = tuple(readUrl(each) for each in text.split(","))
    if len(urls) > _MAX_URLS:
        raise ValueError
    return urls


def _finality(text: str) -> str | int:
    if text == "instant":
        return 0
    return text if text == FINALIZED else integer(text, 1, 100_000)


def _dialect(text: str) -> str:
    if text not in DIALECTS:
        raise ValueError
    return text


_READERS: Readers = {
    "endpoint": (_urls, r"a port, or a URL such as http\://10.0.0.1\:8545, or several"),
    "contract": (readAddress, "an address: 0x and 40 hexadecimal digits"),
    "key": (absolutePath, "a path"),
    "password": (absolutePath, "a path"),
    "chain-id": (lambda text: integer(text, 1, 2**64 - 1), "a number from 1"),
    "finality": (_finality, "instant, finalized, or a number of blocks from 1 to 100000"),
    "topics": TOPICS_READER,
    "dialect": (_dialect, " or ".join(DIALECTS)),
    "window": (lambda text: integer(text, 1, 4096), "a number from 1 to 4096"),
    "attest": (lambda text: integer(text, 0, 2**40), "a number of blocks from 0"),
    "gas-price": (lambda text: integer(text, 0, 2**96), "wei from 0"),
    "interval": (lambda text: number(text, 0, 60), "seconds from 0 to 60"),
    "mempool": (lambda text: integer(text, 1024, 2**40), "bytes from 1024"),
}

_REQUIRED: Final = ("endpoint", "contract", "key", "chain-id", "finality")


def readSettings(settings: Mapping[str, str]) -> EvmSettings:
    """
    Read a description's settings.

    @raise InvalidDescription: one is unknown, has a bad value, or is missing.
    """
    values = readValues("the evm ledger", settings, _READERS)
    for key in _REQUIRED:
        if key not in values:
            raise InvalidDescription(f"{key}: the evm ledger needs it: {SETTINGS[key]}")
    names = {"chain-id": "chainId", "gas-price": "gasPrice"}
    return EvmSettings(**{names.get(key, key): value for key, value in values.items()})
