"""
The contracts of plugins: of a feature of the daemon, and of an authenticator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen
from twisted.cred.credentials import ICredentials
from twisted.cred.error import UnauthorizedLogin
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SkipTest, SynchronousTestCase
from zope.interface.verify import verifyObject

from ..access import ANYBODY, Access, grantsOf
from ..broker import Broker, Calls, IWebhooks, Limits, MetadataStore
from ..broker.features import Feature, RunningFeature, Services, StoredData
from ..broker.subscriptions import KeptPositions, Subscriptions
from ..broker.transparency import CheckpointLines
from ..interfaces import (
    Action,
    AuthenticatorContext,
    Decision,
    GrantLine,
    IAuthenticator,
    Identity,
    IGrants,
    InvalidDescription,
)
from ..net.alarms import Alarms
from ..net.bounds import Sizing
from ..net.budgets import Budgets
from ..net.history import MeasureHistory
from ..net.metrics import Metrics
from ..net.settings import ConfigError, declaredSettings
from ..version import readVersion
from ._fixtures import memoryLedger


@frozen(kw_only=True)
class AuthenticatorFixture:
    """
    An authenticator under test, and the accounts that it knows. The context's clock starts at 0.

    @ivar make: makes it: what a factory's C{configure} gave.
    @ivar name: an account.
    @ivar valid: credentials of it.
    @ivar invalid: credentials that are not valid: first of the same account with a wrong secret,
        then of a name that there is not, then any others.
    @ivar hasAccounts: whether L{IAuthenticator.identify<svcbroker.interfaces.IAuthenticator>}
        knows the account; not where only credentials say who there is.
    @ivar remove: takes the account out of what a reload reads; C{None} where that is not possible.
    @ivar damage: makes what a reload reads invalid; C{None} where that is not possible.
    """

    make: Callable[[AuthenticatorContext], IAuthenticator]
    name: str
    valid: ICredentials = field(repr=False)
    invalid: Sequence[ICredentials] = field(repr=False)
    hasAccounts: bool = True
    remove: Callable[[], object] | None = None
    damage: Callable[[], object] | None = None


class AuthenticatorTests(SynchronousTestCase):
    """
    The tests of the contract; see L{makeAuthenticatorTests}.
    """

    def makeFixture(self) -> AuthenticatorFixture:
        raise NotImplementedError

    def setUp(self) -> None:
        self.calls: list[Any] = []
        self.clock = Clock()
        self.fixture = self.makeFixture()
        self.authenticator = self.fixture.make(
            AuthenticatorContext(
                reactor=self.clock,
                now=self.clock.seconds,
                entropy=lambda size: bytes(range(size)),
                runInThread=self._runInThread,
            )
        )
        self.assertEqual(self.calls, [], "making it does nothing")
        self.assertIsNone(self.successResultOf(self.authenticator.start()))
        self.addCleanup(self.authenticator.stop)

    def _runInThread(self, f: Any, *args: Any) -> Deferred[Any]:
        self.calls.append(f)
        return maybeDeferred(f, *args)

    def _check(self, credentials: Any) -> Deferred[Any]:
        kinds = self.authenticator.credentialInterfaces
        self.assertTrue(any(kind.providedBy(credentials) for kind in kinds), credentials)
        checking: Any = self.authenticator.requestAvatarId(credentials)
        return maybeDeferred(lambda: checking)

    def _login(self) -> Identity:
        identity: Identity = self.successResultOf(self._check(self.fixture.valid))
        self.assertIsInstance(identity, Identity)
        return identity

    def _lasting(self, identity: Identity | None) -> Identity:
        """An identity apart from the end of its log-in, which each log-in may have."""
        assert identity is not None
        return evolve(identity, expiresAt=None)

    def _reload(self) -> None:
        apply = self.successResultOf(self.authenticator.reload())
        self.assertIsNone(apply())

    def test_authenticatorProvidesTheInterface(self) -> None:
        self.assertTrue(verifyObject(IAuthenticator, self.authenticator))
        kinds = self.authenticator.credentialInterfaces
        self.assertTrue(kinds)
        self.assertTrue(all(kind.isOrExtends(ICredentials) for kind in kinds))

    def test_validCredentialsGiveTheIdentity(self) -> None:
        identity = self._login()
        self.assertEqual(identity.name, self.fixture.name)
        self.assertEqual(self._lasting(self._login()), self._lasting(identity))
        if identity.expiresAt is not None:
            self.assertGreater(identity.expiresAt, self.clock.seconds(), "the log-in has ended")

    def test_grantsAnswerForEveryAction(self) -> None:
        grants = self._login().grants
        self.assertTrue(verifyObject(IGrants, grants))
        for action in Action:
            decision = grants.decide(action, "1", "a/b", "")
            self.assertIsInstance(decision, Decision)
            for filter in ("a/b", "a/+", "#"):
                isAny = grants.mayAny(action, "1", filter, "")
                self.assertIsInstance(isAny, bool)
                self.assertTrue(isAny or not decision.isGranted, "a granted topic has no filter")
                self.assertTrue(grants.mayAny(action, None, filter, "") or not isAny)
        lines = grants.describe("1")
        self.assertTrue(all(isinstance(each, GrantLine) for each in lines))
        self.assertTrue(set(lines) <= set(grants.describe(None)))

    def test_namesAreThoseThatAreIdentified(self) -> None:
        names = list(self.authenticator.names())
        self.assertEqual(self.fixture.name in names, self.fixture.hasAccounts)
        for name in names:
            self.assertIsInstance(self.authenticator.identify(name), Identity)

    def test_otherCredentialsAreUnauthorized(self) -> None:
        for credentials in self.fixture.invalid:
            self.failureResultOf(self._check(credentials), UnauthorizedLogin)

    def test_unknownNamesCostAsMuchAsKnownOnes(self) -> None:
        """As far as calls in threads tell."""
        counts = []
        for credentials in self.fixture.invalid[:2]:
            self.calls.clear()
            self.failureResultOf(self._check(credentials), UnauthorizedLogin)
            counts.append(len(self.calls))
        self.assertEqual(counts[0], counts[1])

    def test_identifyAnswersFromMemory(self) -> None:
        identity = self._login()
        self.calls.clear()
        found = self.authenticator.identify(self.fixture.name)
        if self.fixture.hasAccounts:
            assert found is not None
            # No credential is shown.
            why = "of identify, the identity is that of the log-in without its credential"
            wanted = evolve(self._lasting(identity), credential="")
            self.assertEqual(self._lasting(found), wanted, why)
            self.assertIn(identity.credential, {"", *found.credentials})
        else:
            self.assertIsNone(found)
        self.assertIsNone(self.authenticator.identify("there is no such account"))
        self.assertEqual(self.calls, [])

    def test_reloadOfTheSameChangesNothing(self) -> None:
        """Then connections keep the answers that they know."""
        identity = self._login()
        known = self.authenticator.identify(self.fixture.name)
        self._reload()
        self.assertEqual(self.authenticator.identify(self.fixture.name), known)
        self.assertEqual(self._lasting(self._login()), self._lasting(identity))

    def test_removedAccountEndsWhenTheReloadIsApplied(self) -> None:
        if self.fixture.remove is None:
            raise SkipTest("no account can be removed")
        self.fixture.remove()
        apply = self.successResultOf(self.authenticator.reload())
        self._login()
        apply()
        self.failureResultOf(self._check(self.fixture.valid), UnauthorizedLogin)
        self.assertIsNone(self.authenticator.identify(self.fixture.name))

    def test_failedReloadChangesNothing(self) -> None:
        if self.fixture.damage is None:
            raise SkipTest("a reload cannot fail")
        self.fixture.damage()
        failure = self.failureResultOf(self.authenticator.reload(), InvalidDescription)
        self.assertEqual(len(str(failure.value).splitlines()), 1)
        self._login()


def makeAuthenticatorTests(
    makeFixture: Callable[[SynchronousTestCase], AuthenticatorFixture],
) -> type[AuthenticatorTests]:
    """
    A test case with the contract of an authenticator, to subclass.

    @param makeFixture: called by each test, with the test.
    """

    class Tests(AuthenticatorTests):
        def makeFixture(self) -> AuthenticatorFixture:
            return makeFixture(self)

    return Tests


@frozen(kw_only=True)
class FeatureFixture:
    """
    A feature under test.

    @ivar settings: what an operator has given, by the names of settings.
    @ivar damage: makes a file that the settings name one that cannot be used; C{None} where they
        name none.
    @ivar port: the name of the setting of its port, where it has one.
    @ivar publish: what a client without a log-in sends over a new connection, one after the other,
        to publish an event to the open topic C{t}; for one with a port.
    """

    feature: Feature
    settings: Mapping[str, Any] = {}
    damage: Callable[[], object] | None = None
    port: str = ""
    publish: Sequence[bytes] = ()


class _MemoryFile:
    """A metadata store that is kept nowhere."""

    def load(self) -> dict[tuple[str, str], bytes]:
        return {}

    def write(self, changes: dict[tuple[str, str], bytes | None]) -> None:
        """Keep nothing."""

    def close(self) -> None:
        """See L{IMetadataFile<svcbroker.broker._metadatastore.IMetadataFile>}."""


class _Thread:
    """A thread that does its work at once."""

    def run(self, f: Callable[..., Any], *args: Any) -> Deferred[Any]:
        return maybeDeferred(f, *args)

    def stop(self) -> None:
        """Nothing runs."""


class FeatureTests(SynchronousTestCase):
    """
    The tests of the contract; see L{makeFeatureTests}.
    """

    def makeFixture(self) -> FeatureFixture:
        raise NotImplementedError

    def setUp(self) -> None:
        self.reactor: Any = MemoryReactorClock()
        self.reactor.advance(1_700_000_000)
        self.fixture = self.makeFixture()
        feature = self.fixture.feature
        names = {each.name: each.attribute for each in declaredSettings(feature.settings)}
        given = {names[name]: value for name, value in self.fixture.settings.items()}
        self.options = feature.settings(**given)

    def serve(self, *grants: str) -> RunningFeature:
        """
        Make the feature over a ledger in memory.

        @param grants: those of clients without credentials; none where there are no accounts.
        """
        clock, ledger = self.reactor, memoryLedger(self.reactor)
        self.successResultOf(ledger.start())
        ledgers = {"1": ledger}
        budgets = Budgets.of(clock)
        metadata = MetadataStore(_MemoryFile(), clock, _Thread().run)
        positions = KeptPositions(metadata, budgets.subscriptions)
        subscriptions = Subscriptions(
            ledgers, clock, clock.seconds, bytes, positions, budgets=budgets
        )
        anonymous = Identity(name="", grants=grantsOf(grants)) if grants else None
        self.access = Access([], clock, clock.seconds, anonymous=anonymous)
        broker = Broker(ledgers, clock, Limits(), subscriptions, budgets=budgets)
        directory = Path(self.mktemp())
        directory.mkdir()
        conditions = self.fixture.feature.conditions
        self.services = Services(
            reactor=clock,
            now=clock.seconds,
            steady=clock.seconds,
            entropy=bytes,
            random=lambda: 0.5,
            makeThread=lambda *args: _Thread(),
            runInThread=_Thread().run,
            budgets=budgets,
            settingsOf=lambda kind: kind(),
            dataDir=directory,
            arguments=(),
            basePath="/svcbroker",
            dialect="",
            address="127.0.0.1:8080",
            localPorts=(),
            operatorToken="00",
            version=readVersion(),
            tracer=None,
            ledgers=ledgers,
            broker=broker,
            subscriptions=subscriptions,
            positions=positions,
            metadata=metadata,
            access=self.access,
            metrics=Metrics(clock, broker.budgets.work),
            alarms=Alarms(conditions, clock, clock.seconds),
            history=MeasureHistory((), clock.seconds),
            checkpointLines=CheckpointLines(),
        )
        feature = self.fixture.feature
        made = feature.make(feature.read(self.options), self.services)
        self.ledger = ledger
        return made

    def calls(self, made: RunningFeature) -> Calls:
        """The calls of the interface, where only this feature answers."""
        nothing: Any = None
        answers = {IWebhooks: nothing, **made.answers}
        broker, version = self.services.broker, self.services.version
        return Calls(broker, answers, nodeAddress="127.0.0.1:8080", version=version)

    def settle(self) -> None:
        """Let everything happen that needs no time."""
        for _ in range(50):
            self.reactor.advance(0.001)

    def end(self, made: RunningFeature) -> None:
        """Drain and release it as the daemon does."""
        drained = maybeDeferred(made.drain)
        self.settle()
        self.successResultOf(drained)
        self.services.subscriptions.stop()
        stopped = self.services.metadata.stop()
        self.settle()
        self.successResultOf(stopped)
        self.successResultOf(maybeDeferred(self.ledger.stop))
        self.services.broker.stop()
        made.release()
        self.access.stop()

    def connect(self, made: RunningFeature) -> tuple[Any, StringTransport]:
        """Connect a client to its port."""
        protocol = self.factory.buildProtocol(None)
        transport = StringTransport()
        if protocol is not None:
            protocol.makeConnection(transport)
        return protocol, transport

    def count(self) -> int:
        """The number of transactions in the log."""
        return self.successResultOf(self.ledger.getStatistics()).transactionCount

    def open(self, made: RunningFeature) -> None:
        """Start it, with the factory of its port."""
        self.successResultOf(self.services.subscriptions.start())
        self.factory = made.factories(self.calls(made), [])[self.fixture.port]
        self.factory.doStart()
        started = maybeDeferred(made.start)
        self.settle()
        self.successResultOf(started)

    # The contract

    def test_settingsHaveDefaultsAndHelp(self) -> None:
        """Each field is a setting; what comes without a file is read without one."""
        feature = self.fixture.feature
        feature.read(feature.settings())
        for setting in declaredSettings(feature.settings):
            self.assertTrue(setting.help and not setting.help.endswith("."), setting.name)
            self.assertRegex(setting.name, r"^[a-z][a-z0-9-]*$")
        names = {setting.name for setting in declaredSettings(feature.settings)}
        self.assertLessEqual({*feature.secrets, *self.fixture.settings}, names)

    def test_checksAreFindings(self) -> None:
        """Each finding of doctor has a subject and a text."""
        feature = self.fixture.feature
        data = StoredData(dataDir=self.mktemp(), now=0.0)
        for finding in chain(
            feature.checks(feature.read(self.options)), feature.dataChecks(self.options, data)
        ):
            self.assertTrue(finding.subject and finding.text)

    def test_boundsAreAmounts(self) -> None:
        """Each bound has a name and an amount; one with bytes says how they come about."""
        feature = self.fixture.feature
        for bound in feature.bounds(self.options, Sizing(groups=1, maxContent=1024)):
            self.assertTrue(bound.name and bound.bytes >= 0)
            self.assertTrue(bound.how or not bound.bytes, bound.name)

    def test_metricsAreNamedAlike(self) -> None:
        """Their names begin as all do, and they are explained."""
        made = self.serve()
        self.addCleanup(self.end, made)
        families: Any = self.successResultOf(maybeDeferred(made.metrics))
        for family in families:
            self.assertTrue(family.name.startswith(("svcbroker_", "process_")), family.name)
            self.assertTrue(family.documentation.endswith("."), family.name)

    def test_alarmsAreDeclared(self) -> None:
        """Conditions are explained; a feature to which nothing has happened has no alarm."""
        for each in self.fixture.feature.conditions:
            self.assertRegex(each.name, r"^[a-z]+(-[a-z]+)*$")
            self.assertFalse(each.title.endswith("."), each.name)
            for text in (each.meaning, each.remedy):
                self.assertTrue(text.endswith("."), text)
        made = self.serve()
        self.addCleanup(self.end, made)
        self.assertEqual([*self.successResultOf(maybeDeferred(made.alarms))], [])

    def test_endLeavesNothing(self) -> None:
        """After the drain and the release no timer is left that the feature has started."""
        made = self.serve()
        started = maybeDeferred(made.start)
        self.settle()
        self.successResultOf(started)
        self.end(made)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_drainNeedsNoStart(self) -> None:
        """A feature whose start was not reached is drained all the same."""
        made = self.serve()
        self.end(made)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_reloadChecksBeforeItApplies(self) -> None:
        """A file that cannot be used is told of by the reading, before anything has changed."""
        made = self.serve()
        self.addCleanup(self.end, made)
        made.reload()()
        if self.fixture.damage is not None:
            self.fixture.damage()
            self.assertRaises(ConfigError, made.reload)
            feature = self.fixture.feature
            self.assertRaises(ConfigError, feature.read, self.options)


class PortTests(FeatureTests):
    """
    The tests of the contract of a feature with a port of its own.
    """

    def test_accessIsAsked(self) -> None:
        """A client without a log-in publishes only where everybody may."""
        for grants, isPublished in (("subscribe 1 #",), False), (("* * #",), True):
            made = self.serve(*grants)
            self.open(made)
            opening = self.services.broker.open(ANYBODY, None, "t")
            self.settle()
            self.successResultOf(opening)
            before = self.count()
            protocol, transport = self.connect(made)
            for data in self.fixture.publish:
                protocol.dataReceived(data)
                self.settle()
            self.assertEqual(self.count() > before, isPublished, transport.value())
            protocol.connectionLost(None)
            self.end(made)
            self.assertEqual(self.services.budgets.output.used, 0)

    def test_drainedPortTakesNoConnection(self) -> None:
        """Connections are refused once it is drained, and those there were are closed before."""
        made = self.serve()
        self.open(made)
        protocol, transport = self.connect(made)
        self.assertTrue(hasattr(protocol, "stranger"), "the daemon bounds unknown clients")
        drained = maybeDeferred(made.drain)
        self.settle()
        self.assertTrue(transport.disconnecting or transport.disconnected)
        protocol.connectionLost(None)
        self.settle()
        self.successResultOf(drained)
        self.assertIsNone(self.factory.buildProtocol(None))
        # It is drained once.
        made.drain = lambda: succeed(None)  # type: ignore[method-assign]
        self.end(made)


def makeFeatureTests(
    makeFixture: Callable[[SynchronousTestCase], FeatureFixture], *, hasPort: bool = False
) -> type[FeatureTests]:
    """
    A test case with the contract of a feature.

    @param makeFixture: makes the fixture of a test, which it is given for temporary files.
    @param hasPort: whether clients connect to a port of its own.
    """
    base = PortTests if hasPort else FeatureTests
    return type("Tests", (base,), {"makeFixture": lambda self: makeFixture(self)})
