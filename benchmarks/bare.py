"""
What the broker is compared with: a Klein route and a twisted.web resource that do nothing but
give an answer as long as the broker's, both as they come. Their access log is made but goes
nowhere. One process, two ports, which it prints.
"""

from __future__ import annotations

from typing import Any

from klein import Klein
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.web.iweb import IRequest
from twisted.web.resource import Resource
from twisted.web.server import Site

ANSWER = b'{"topic":"bench","eventId":"f3a7b2c1-1234567-123456","status":"SUCCESS"}'

reactor: Any = _reactor
app = Klein()


def answer(request: Any) -> bytes:
    """Set the headers that the broker sets."""
    request.setHeader(b"content-type", b"application/json;charset=UTF-8")
    request.setHeader(b"content-length", b"%d" % len(ANSWER))
    return ANSWER


@app.route("/svcbroker/rest/publish", methods=["GET", "POST"])
def publish(request: IRequest) -> bytes:
    """A route."""
    return answer(request)


class Bare(Resource):
    """A resource."""

    isLeaf = True

    def render_GET(self, request: IRequest) -> bytes:
        """Answer."""
        return answer(request)

    render_POST = render_GET


async def main() -> None:
    """Listen, and say where."""
    ports = []
    for site in (Site(app.resource()), Site(Bare())):
        endpoint = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        listening: Any = await endpoint.listen(site)
        ports.append(str(listening.getHost().port))
    print("serves", *ports, flush=True)


if __name__ == "__main__":
    reactor.callWhenRunning(lambda: Deferred.fromCoroutine(main()))
    reactor.run()
