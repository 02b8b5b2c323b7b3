"""
A carrier for lines of text: C{LOGIN NAME PASSWORD}, C{PUB TOPIC CONTENT} and C{SUB FILTER}. Each is
answered C{OK}, for an event with its id, or C{ERR}; events come as C{EVENT ID TOPIC CONTENT}.
"""

from functools import partial
from pathlib import Path

from attrs import frozen
from twisted.internet.protocol import Factory
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure
from zope.interface import implementer

from svcbroker.access import credentialsOf
from svcbroker.broker import Publication, PublishPolicy
from svcbroker.broker.features import Feature, RunningFeature, carrierMetrics
from svcbroker.errors import BrokerError, NoSuchCall
from svcbroker.interfaces import ISubscriber
from svcbroker.model import InterfaceType, SubscribeRequest
from svcbroker.net.addresses import ownerKey, peerText
from svcbroker.net.bounds import CONNECTIONS, Bound
from svcbroker.net.deferreds import asDeferred
from svcbroker.net.findings import good
from svcbroker.net.settings import ConfigError, Endpoint, Text, anyText, declareSetting
from svcbroker.net.transports import OpenConnections
from svcbroker.operations import Incidents

POLICY = PublishPolicy(carrier="line", opensTopics=True)


@frozen(kw_only=True)
class LineOptions:
    endpoint: str = declareSetting("line", Endpoint(), "", "where lines are served", "nowhere")
    greeting: str = declareSetting(
        *("line-greeting", Text(metavar="FILE", normalise=anyText), ""),
        *("a file with the first line that clients are sent", "none"),
    )


def readGreeting(options):
    try:
        return options, Path(options.greeting).read_bytes().strip() if options.greeting else b""
    except OSError as error:
        raise ConfigError(f"line-greeting: cannot read it: {error.strerror}") from None


@implementer(ISubscriber)
class LineProtocol(LineReceiver):
    delimiter, MAX_LENGTH = b"\n", 16384
    stranger = admission = None  # The daemon bounds connections that have not logged in.
    isBusy = isFull = isClosed = False

    def connectionMade(self):
        self.services, self.subscriptions = self.factory.services, []
        self.remote = peerText(self.transport.getPeer())
        # What waits for clients that do not read has one budget over all connections.
        wait, flow = partial(self.flow, isFull=True), partial(self.flow, isFull=False)
        owner, output = ownerKey("", self.remote), self.services.budgets.output
        self.unsent = output.unsent(owner, self.transport, wait, flow)
        self.transport.registerProducer(self.unsent, True)
        self.factory.protocols.add(self)
        if self.factory.greeting:
            self.send(self.factory.greeting)

    def flow(self, **changes):
        """Read, and be given events, only while the client reads and no line is being answered."""
        self.__dict__.update(changes)
        (self.pauseProducing if self.isBusy or self.isFull else self.resumeProducing)()
        for each in self.subscriptions:
            (each.pause if self.isFull else each.resume)()

    def send(self, *words):
        self.sendLine(b" ".join(words))
        self.unsent.written()

    def lineReceived(self, line):
        self.flow(isBusy=True)
        command, _, rest = line.rstrip(b"\r").partition(b" ")
        first, _, rest = rest.partition(b" ")
        self.answer(command, first, rest)

    @asDeferred
    async def answer(self, command, first, rest):
        calls = {b"LOGIN": self.login, b"PUB": self.publish, b"SUB": self.subscribe}
        try:
            if command not in calls:
                raise NoSuchCall()
            if self.admission is None and command != b"LOGIN":
                await self.login(None, None)
            words = [b"OK", *await calls[command](first, rest)]
        except Exception:
            error = self.factory.incidents.explain(Failure())
            words = [b"ERR", b"%d" % error.code, error.message.encode()]
        if self.isClosed:
            self.leave()
        else:
            self.send(*words)
            self.flow(isBusy=False)
            if self.factory.protocols.isDraining:
                self.transport.loseConnection()

    async def login(self, name, password):
        credentials = credentialsOf(self.transport, name, password)
        address, close = getattr(self.transport.getPeer(), "host", ""), self.subscriptionEnded
        admission = await self.services.access.admit(credentials, address, close, carrier="line")
        self.leave()
        self.admission = admission
        self.unsent.belongTo(ownerKey(admission.principal.name, self.remote))
        return ()

    async def publish(self, topic, content):
        event = Publication(topic=topic.decode("utf-8", "replace"), content=content, extensions={})
        [answer] = await self.services.broker.publish(self.admission.principal, [event], POLICY)
        if isinstance(answer, BrokerError):
            raise answer
        return [str(answer.eventId or answer.status.value).encode()]

    async def subscribe(self, pattern, _):
        live, principal = self.services.subscriptions, self.admission.principal
        asked = SubscribeRequest(
            interfaceType=InterfaceType.RESTFUL,
            kind="line",
            group=self.services.broker.groups.resolve(principal, None),
            filters=(pattern.decode("utf-8", "replace"),),
            remote=self.remote,
            mustExist=False,
        )
        self.subscriptions.append(await live.subscribe(principal, asked, self))
        return ()

    def deliver(self, batch):
        for event in batch.events:
            self.send(b"EVENT", f"{event.eventId} {event.topic}".encode(), event.content)

    def subscriptionEnded(self, error=None):
        self.transport.loseConnection()

    def leave(self):
        """Give back what the connection has: its log-in and its place among strangers too."""
        ends = [each.close for each in self.subscriptions]
        ends += [each.release for each in (self.admission,) if each is not None]
        ends += [each.leave for each in (self.stranger,) if each is not None]
        self.admission, self.subscriptions = None, []
        for end in ends:
            end()

    def close(self):
        """Close once the line that is being answered, if one is, has its answer."""
        if not self.isBusy:
            self.transport.loseConnection()

    def connectionLost(self, reason=None):
        self.isClosed = True
        self.leave()
        self.unsent.close()
        self.factory.protocols.discard(self)


class LineFeature(RunningFeature, Factory):
    noisy, protocol = False, LineProtocol

    def __init__(self, read, services):
        (self.options, self.greeting), self.services = read, services
        self.protocols, self.incidents = OpenConnections(services.budgets.work.makeAll), Incidents()

    def buildProtocol(self, addr):
        return None if self.protocols.isDraining else super().buildProtocol(addr)

    def factories(self, calls, routes):
        return {"line": self}

    def metrics(self):
        return carrierMetrics("line", self.services, len(self.protocols))

    def reload(self):
        _, greeting = readGreeting(self.options)
        return partial(setattr, self, "greeting", greeting)

    def drain(self):
        return self.protocols.drain(
            LineProtocol.close, lambda each: each.transport.abortConnection()
        )


def checks(read):
    if read[0].endpoint:
        yield good("line", f"clients are greeted with {len(read[1])} bytes")


def bounds(options, sizing):
    yield Bound(name=CONNECTIONS, holders=["line_carrier.LineFeature.protocols"])


FEATURE = Feature(
    name="line",
    settings=LineOptions,
    read=readGreeting,
    make=LineFeature,
    checks=checks,
    bounds=bounds,
)
