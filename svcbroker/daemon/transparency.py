"""
The transparency logs of the groups, and the witnesses that cosign them.
"""

from __future__ import annotations

from collections.abc import Mapping

from twisted.logger import Logger

from ..broker import MetadataStore
from ..broker.transparency import (
    CosignedCheckpoints,
    TransparencyLog,
    Witnessing,
    WitnessingRule,
    checkWitnesses,
)
from ..carriers.witnesses import WitnessClient, makeWitnessClient
from ..chain import Malformed
from ..files import readFile
from ..interfaces import ILedger, IProvableLedger
from ..net.deferreds import asDeferred
from ..tlog import Policy
from .config import Config, ConfigError
from .dependencies import Dependencies


def readWitnessPolicy(config: Config) -> Policy | None:
    """
    The policy of the witnesses; C{None} where there are none.

    @raise ConfigError: its file cannot be used.
    """
    path = config.witnessPolicy
    if not path:
        return None
    try:
        policy = Policy.parse(readFile(path))
        checkWitnesses(policy)
    except OSError as error:
        raise ConfigError(f"witness-policy: cannot read {path}: {error.strerror}") from error
    except (Malformed, ValueError) as error:
        raise ConfigError(f"witness-policy: {path}: {error}") from None
    return policy


class TransparencyLogs:
    """
    The logs of the groups whose ledgers have a chain, and what has them cosigned.

    @ivar logs: the logs by the id of their group.
    @ivar witnessings: what has them cosigned, where there are witnesses.
    """

    _log = Logger()

    def __init__(
        self,
        config: Config,
        policy: Policy | None,
        ledgers: Mapping[str, ILedger],
        metadata: MetadataStore,
        dependencies: Dependencies,
    ) -> None:
        """
        @param policy: the witnesses; C{None} for none.
        """
        reactor, now, random = dependencies.reactor, dependencies.now, dependencies.random
        self.logs: dict[str, TransparencyLog] = {}
        self.witnessings: dict[str, Witnessing] = {}
        self._policy = policy
        self._client: WitnessClient | None = None
        if policy is not None:
            self._client = makeWitnessClient(reactor)
        rule = WitnessingRule(interval=config.witnessInterval)
        for group, ledger in ledgers.items():
            provable: IProvableLedger | None = IProvableLedger(ledger, None)
            if provable is None:
                continue
            origin = f"{config.logOrigin}/log/{group}" if config.logOrigin else ""
            cosigned = None if policy is None else CosignedCheckpoints(group, policy, metadata)
            log = TransparencyLog(provable, metadata, reactor.seconds, origin, cosigned)
            self.logs[group] = log
            if cosigned is not None and self._client is not None:
                self.witnessings[group] = Witnessing(
                    *(log, cosigned, self._client, metadata, reactor, now, random, rule)
                )

    @asDeferred
    async def start(self) -> None:
        """Begin to have the logs cosigned. Nothing waits for it."""
        if self._policy is not None and self._policy.warning:
            self._log.warn("witness-policy: {warning}", warning=self._policy.warning)
        for each in self.witnessings.values():
            await each.start()

    @asDeferred
    async def stop(self) -> None:
        """End. Requests under way are given up."""
        for each in self.witnessings.values():
            await each.stop()
        if self._client is not None:
            await self._client.close()
