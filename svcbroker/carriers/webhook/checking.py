"""
Whether a webhook may be made as a client asks for it: its options, and its URL as far as is known
when the client subscribes.
"""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import TimeoutError
from twisted.internet.interfaces import IHostnameResolver, IReactorTime

from ...errors import Overloaded, ParameterInvalid, UrlInvalid
from ...model import EventFormat
from ...net.endpoints import hasPermittedAddress
from .records import WebhookRecord
from .settings import WebhookSettings
from .signing import Secrets
from .targets import Target

MAX_LOOKUPS: Final = 16
"""The most host names that are resolved at the same time for C{subscribe}."""


def checkOptions(record: WebhookRecord, secrets: Secrets) -> None:
    """
    Check that options fit together, and that the account may use the names that they have.

    @raise ParameterInvalid: they do not.
    """
    if record.secret and not secrets.mayUse(record.secret, record.account):
        raise ParameterInvalid("secret: the operator has set no such secret for this account")
    if record.batch and record.format is EventFormat.BINARY_CLOUD_EVENTS:
        raise ParameterInvalid(
            "format: cloudevents-binary has one event in a request; with batch use cloudevents"
        )
    if not record.certificate:
        return
    if not record.url.startswith("https:"):
        raise ParameterInvalid("certificate: it needs a url with https")
    allowed = secrets.certificatesOf(record.account)
    if record.certificate not in allowed:
        names = ", ".join(sorted(allowed)) or "none"
        raise ParameterInvalid(f"certificate: those that this account may use are {names}")


class TargetChecker:
    """
    Checks the hosts of URLs. Connections check the addresses again.
    """

    def __init__(
        self, resolver: IHostnameResolver, settings: WebhookSettings, clock: IReactorTime
    ) -> None:
        self._resolver = resolver
        self._settings = settings
        self._clock = clock
        self._lookups = 0

    async def check(self, target: Target) -> None:
        """
        Check a target before a webhook is made.

        @raise UrlInvalid: events may not be sent there.
        """
        policy = self._settings.policy
        if target.isAddress:
            isPermitted = policy.permits(target.host, target.host, target.port)
        elif target.host in policy.hosts:
            isPermitted = True
        elif self._lookups >= MAX_LOOKUPS:
            raise Overloaded()
        else:
            isPermitted = await self._lookUp(target.host, target.port)
        if not isPermitted:
            # The same words for a name that does not exist: the answer must not tell which
            # names exist inside.
            raise UrlInvalid(
                "url's host has no address that events may be sent to at its port: an operator "
                "permits private addresses, and ports below 1024 beside 80 and 443, with "
                "--webhook-allow"
            )

    async def _lookUp(self, host: str, port: int) -> bool:
        self._lookups += 1
        try:
            found = hasPermittedAddress(self._resolver, self._settings.policy, host, port)
            return await found.addTimeout(self._settings.timeout, self._clock)
        except TimeoutError:
            return False
        finally:
            self._lookups -= 1
