"""
Witnesses of the transparency logs, asked over HTTP (c2sp.org/tlog-witness).
"""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.web.http_headers import Headers

from ...net.deferreds import asDeferred
from ...net.http import HttpClient, HttpError, makeClient, readBody
from ...proofs.tlog import MAX_NOTE_SIZE
from ._cosigning import WitnessFailed

TIMEOUT: Final = 30.0
"""The time that a witness may take for an answer, in seconds."""
CONNECT_TIMEOUT: Final = 10.0
"""The time that connecting to a witness may take, in seconds."""

_HEADERS: Final = Headers(
    {b"Content-Type": [b"text/plain; charset=utf-8"], b"User-Agent": [b"svcbroker"]}
)


class WitnessClient:
    """
    Makes the requests to witnesses. Any address may be asked: the operator names them.
    """

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    @asDeferred
    async def addCheckpoint(self, url: str, body: bytes) -> tuple[int, bytes]:
        """See L{IWitnessClient<svcbroker.broker.transparency.IWitnessClient>}."""
        try:
            answer = await self._client.request(
                *("POST", f"{url.rstrip('/')}/add-checkpoint"),
                headers=_HEADERS,
                data=body,
                timeout=TIMEOUT,
                maxBody=MAX_NOTE_SIZE,
            )
            return answer.code, await readBody(answer)
        except HttpError as error:
            raise WitnessFailed(str(error)) from None

    def close(self) -> Deferred[Any]:
        """Close the connections that are kept."""
        return self._client.close()


def makeWitnessClient(reactor: Any) -> WitnessClient:
    """A client over the network."""
    # A checkpoint that a witness has already seen changes nothing.
    client = makeClient(
        reactor,
        maxBody=MAX_NOTE_SIZE,
        keep=1,
        isRepeatable=True,
        connectTimeout=CONNECT_TIMEOUT,
    )
    return WitnessClient(client)
