"""
Tests for the three clients, with the real daemon.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.protocol import Factory, Protocol

from svcbroker.access import hashPassword
from svcbroker.client import (
    AnswerInvalid,
    AuthorKey,
    ClosedEvent,
    Event,
    NotVerified,
    OpenedEvent,
    Publication,
    Published,
    Unreachable,
    _effects,
)
from svcbroker.errors import (
    AuthorRefused,
    EventNotFound,
    NotAuthenticated,
    NotAuthorized,
    SequenceConflict,
    TopicNotFound,
)
from svcbroker.proofs import readGenesis, verifyProof
from tests.needed import needPackage
from tests.proofs.test_age import IDENTITY, RECIPIENT

from .clients import Asyncio, Blocking, Face, Twisted
from .daemon import AGAIN, TIMEOUT, Daemon, reactor
from .test_certificates import CertificatesTestCase

LEDGER = "pbft:nodes=1"
EVENTS = int(os.environ.get("SVCBROKER_CLIENT_EVENTS", "2000"))
KILLS = int(os.environ.get("SVCBROKER_CLIENT_KILLS", "4"))
BATCH = 20
TOPIC = "orders/new"
END = b"the last event"


def isEnd(event: Event) -> bool:
    """Whether an event is the last one of a test."""
    return event.content == END


def never(event: Event) -> bool:
    """All events are wanted."""
    return False


class ClientTests(CertificatesTestCase):
    """
    Tests of the blocking client, and those that the others inherit.
    """

    timeout = 3 * TIMEOUT + EVENTS / 100
    makeFace: Callable[..., Face] = Blocking

    def face(self, *urls: str, **options: Any) -> Face:
        """A client, which is closed at the end of the test."""
        made = type(self).makeFace(*urls, **options)
        self.addCleanup(lambda: Deferred.fromCoroutine(made.close()))
        return made

    async def again(self, daemon: Daemon, dataDir: Path | None = None) -> Daemon:
        """Kill a daemon, and start one on its port."""
        if not daemon.protocol.ended.called:
            self.assertEqual(await daemon.stop(signal.SIGKILL), -signal.SIGKILL)
        self.dataDir = dataDir or self.dataDir
        at = urlsplit(daemon.base)
        return await self.start(ledger=LEDGER, http=f"tcp:{at.port}:interface={at.hostname}")

    async def test_longAnswersAreNotRead(self) -> None:
        """One that is too long fails at once, and the client goes on."""
        daemon = await self.start(ledger=LEDGER)
        face = self.face(daemon.base)
        await face.call("open", TOPIC)
        published = await face.call("publish", TOPIC, "x" * 5000)
        with self.assertRaisesRegex(Unreachable, "longer than 5000 bytes"):
            self.patch(_effects, "MAX_ANSWER", 5000)
            await face.call("getEvent", published.eventId)
        self.patch(_effects, "MAX_ANSWER", 10_000)
        self.assertEqual((await face.call("getEvent", published.eventId)).content, b"x" * 5000)

    async def test_confidentialEventsAreOpened(self) -> None:
        """An event is read in plain with an identity, and is shown as closed without."""
        needPackage("pyrage", "encryption")
        daemon = await self.start(ledger=LEDGER)
        author = self.face(daemon.base, recipients=[RECIPIENT])
        await author.call("open", TOPIC)
        published = await author.call("publish", TOPIC, "price 7")
        await author.call("publish", TOPIC, END, recipients=[])
        verified = self.face(
            daemon.base, identities=[IDENTITY], genesis=await author.call("genesis")
        )
        for reader, kind, content in (
            (verified, OpenedEvent, b"price 7"),
            (self.face(daemon.base), ClosedEvent, None),
        ):
            found = [await reader.call("getEvent", published.eventId)]
            found += (await reader.take("events", isEnd, TOPIC))[:1]
            found += (await reader.take("follow", isEnd, TOPIC, after="OFFSET_FIRST"))[:1]
            self.assertEqual([type(each) for each in found], [kind] * 3)
            if content is not None:
                self.assertEqual([each.content for each in found], [content] * 3)

    async def test_everyCallWorks(self) -> None:
        """Topics are opened and closed, events are published and read."""
        daemon = await self.start(ledger=LEDGER)
        face = self.face(daemon.base + "/")
        self.assertIs(await face.call("exist", TOPIC), False)
        self.assertIs(await face.call("open", TOPIC), True)
        self.assertEqual([each.topicName for each in await face.call("topics")], [TOPIC])
        content = bytes(range(256))
        published = await face.call("publish", TOPIC, content, {"svc-tag": "z\xfcrich &+"})
        many = await face.call("publishMany", (Publication(TOPIC, str(n)) for n in range(9)))
        state = await face.call("state", TOPIC)
        self.assertEqual(state.sequenceNumber, 10)
        event = await face.call("getEvent", published.eventId)
        self.assertEqual((event.content, event.topic), (content, TOPIC))
        self.assertEqual(event.extensions, {"svc-tag": "z\xfcrich &+"})
        ids = [published.eventId, *(each.eventId for each in many)]
        read = await face.take("events", never, "orders/#", limit=7)
        self.assertEqual([each.eventId for each in read], ids[:7])
        self.assertEqual([each.sequence for each in read], [*range(1, 8)])
        after = await face.take("events", never, "orders/#", after=ids[3])
        self.assertEqual([each.eventId for each in after], ids[4:])
        tagged = await face.take("events", never, TOPIC, tag="z\xfcrich &+")
        self.assertEqual([each.eventId for each in tagged], ids[:1])
        back = await face.take("events", never, "#", after="OFFSET_LAST", reverse=True)
        self.assertEqual([each.eventId for each in back], ids[::-1])
        last = await face.take("follow", lambda each: each.eventId == ids[-1], "#", after=ids[0])
        self.assertEqual([each.eventId for each in last], ids[1:])
        self.assertEqual((await face.call("checkpoint", event.height)).height, event.height)
        self.assertIs(await face.call("close", TOPIC), True)
        for name, *arguments in (("close", TOPIC), ("publish", TOPIC, "x"), ("state", TOPIC)):
            await self.assertFailure(face.call(name, *arguments), TopicNotFound)
        await self.assertFailure(face.call("getEvent", ids[0][:-1] + "1"), EventNotFound)

    async def test_absentBrokerIsUnreachable(self) -> None:
        """A call to an address without a broker ends within its time."""
        daemon = await self.start()
        await daemon.stop()
        face = self.face(daemon.base, timeout=1.0)
        error = await self.assertFailure(face.call("exist", TOPIC), Unreachable)
        self.assertFalse(error.isSent)
        following = face.take("follow", never, "#", timeout=1.0)
        await self.assertFailure(following, Unreachable)

    async def test_badlyEncodedAnswerIsNone(self) -> None:
        """An answer with a wrong Content-Encoding, as of a broken proxy, is none."""

        class Proxy(Protocol):
            def dataReceived(self, data: bytes) -> None:
                assert self.transport is not None
                head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\n"
                self.transport.write(head + b"plain")
                self.transport.loseConnection()

        port = reactor.listenTCP(0, Factory.forProtocol(Proxy), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        face = self.face(f"http://127.0.0.1:{port.getHost().port}", timeout=1.0)
        # The client for Twisted takes the answer as it is; for httpx it is broken off.
        await self.assertFailure(face.call("exist", TOPIC), AnswerInvalid, Unreachable)

    async def test_otherBrokerIsUsed(self) -> None:
        """A client that is given several brokers uses one that answers."""
        daemon = await self.start()
        face = self.face("http://127.0.0.1:9/svcbroker", daemon.base)
        self.assertIs(await face.call("open", TOPIC), True)
        await face.call("publish", TOPIC, END)
        [event] = await face.take("follow", isEnd, "#", after="OFFSET_FIRST")
        self.assertEqual(event.content, END)

    async def test_credentialsAreSent(self) -> None:
        """Passwords, tokens and client certificates are taken; without them calls are refused."""
        made = await self.make()
        accounts = self.root / "accounts.toml"
        accounts.write_text(
            f"""
            [accounts.ann]
            password = "{hashPassword(b"secret")}"
            tokens = [{{ label = "x", sha256 = "{sha256(b"svct_of_ann").hexdigest()}" }}]
            roles = ["everything"]
            [accounts.client]
            certificate = "client"
            roles = ["subscriber"]
            """
        )
        daemon = await self.start(f"--accounts={accounts}", http=made.endpoint())
        url = f"https://localhost:{await self.portOf(daemon, 'HTTP')}/svcbroker"
        identity = made.root / "clients" / "client"
        ca = made.root / "ca.pem"
        for options in ({"user": "ann", "password": "secret"}, {"token": "svct_of_ann"}):
            self.assertIs(await self.face(url, ca=ca, **options).call("open", TOPIC), True)
        certified = self.face(
            url, ca=ca, certificate=identity / "cert.pem", certificateKey=identity / "key.pem"
        )
        self.assertEqual((await certified.call("state", TOPIC)).sequenceNumber, 0)
        await self.assertFailure(certified.call("publish", TOPIC, "x"), NotAuthorized)
        for options in ({}, {"user": "ann", "password": "wrong"}):
            face = self.face(url, ca=ca, **options)
            await self.assertFailure(face.call("open", TOPIC), NotAuthenticated)
            await self.assertFailure(face.take("follow", never, "#"), NotAuthenticated)
        error = await self.assertFailure(self.face(url).call("open", TOPIC), Unreachable)
        self.assertEqual((error.isFinal, error.isSent), (True, False))

    async def test_forkIsRefused(self) -> None:
        """
        Events are verified as they come. A broker that was set back to an earlier state, and has
        published other events since, has valid signatures, but is refused.
        """
        daemon = await self.start(ledger=LEDGER, http=AGAIN)
        genesis = await self.face(daemon.base).call("genesis")
        kept = self.root / "checkpoint.json"
        face = self.face(daemon.base, genesis=genesis, checkpointFile=kept)
        await face.call("open", TOPIC)
        first = await face.call("publish", TOPIC, "first")
        await daemon.stop()
        copy = self.root / "copy"
        shutil.copytree(self.dataDir, copy)
        daemon = await self.again(daemon)
        many = await face.call("publishMany", [Publication(TOPIC, str(n)) for n in range(120)])
        self.assertEqual({type(each) for each in many}, {Published})
        last = await face.call("publish", TOPIC, "last")
        read = await face.take("events", never, "#")
        self.assertEqual(len(read), 122)
        followed = await face.take("follow", lambda e: e.eventId == last.eventId, "#", after=1)
        self.assertEqual(followed, read)
        proof = await face.call("proof", last.eventId)
        proved = verifyProof(proof, chain=readGenesis(genesis).chain)
        self.assertEqual((proved.eventId, proved.content), (last.eventId, b"last"))
        checkpoint = await face.call("checkpoint")
        self.assertIn(checkpoint.checkpoint, kept.read_text("utf-8"))
        # A client that trusts a checkpoint only, and one that has nothing but the file.
        for options in ({"checkpoint": checkpoint.checkpoint}, {"checkpointFile": kept}):
            other = self.face(daemon.base, **options)
            self.assertEqual(len(await other.take("events", never, "#")), 122)
        daemon = await self.again(daemon, copy)
        stranger = self.face(daemon.base)
        for number in range(5):
            await stranger.call("publish", TOPIC, f"other {number}")
        restarted = self.face(daemon.base, checkpointFile=kept)
        for each in (face, restarted):
            await self.assertFailure(each.call("getEvent", first.eventId), NotVerified)
            await self.assertFailure(each.take("events", never, "#"), NotVerified)
            await self.assertFailure(each.take("follow", never, "#", after=1), NotVerified)
            await self.assertFailure(each.call("publish", TOPIC, "x"), NotVerified)
            await self.assertFailure(each.call("checkpoint"), NotVerified)

    async def test_signedEventsHaveTheirAuthor(self) -> None:
        """Events are signed with a key of openssl. A topic of certain authors takes no others."""
        path = self.root / "author.pem"
        command = ("genpkey", "-algorithm", "ed25519", "-out", str(path))
        self.assertEqual((await self.runCommand("openssl", *command))[0], 0)
        key = AuthorKey.read(path)
        daemon = await self.start(ledger=LEDGER)
        face = self.face(daemon.base)
        genesis = await face.call("genesis")
        signing = self.face(daemon.base, key=path, genesis=genesis)
        await face.call("open", TOPIC, authors=[key.public])
        await self.assertFailure(face.call("publish", TOPIC, "x"), AuthorRefused)
        extensions = {"svc-b": "z\xfc", "svc-a": ""}
        published = [
            await signing.call("publish", TOPIC, bytes(range(256)), extensions),
            *await signing.call("publishMany", [Publication(TOPIC, str(n)) for n in range(3)]),
            await face.call("publish", TOPIC, "x", author=key, expectedSequence=4),
        ]
        for each in published:
            proof = await signing.call("proof", each.eventId)
            proved = verifyProof(proof, chain=readGenesis(genesis).chain)
            assert proved.author is not None
            self.assertEqual(proved.author.key, key.public)
        again = face.call("publish", TOPIC, "y", author=key, expectedSequence=4)
        error = await self.assertFailure(again, SequenceConflict)
        self.assertEqual(error.sequence, 5)

    async def test_eventsComeOnceAcrossKills(self) -> None:
        """
        A broker is killed several times while events are published and followed: each is in the
        log once, and each is delivered once, in the order of the log.
        """
        daemon = await self.start(ledger=LEDGER, http=AGAIN)
        publisher, follower = self.face(daemon.base), self.face(daemon.base)
        await publisher.call("open", TOPIC)
        thresholds = [EVENTS * n // (KILLS + 1) for n in range(1, KILLS + 1)]
        reached: list[Deferred[Any]] = [Deferred() for _ in thresholds]
        count = 0

        def until(event: Event) -> bool:
            nonlocal count
            count += 1
            if count in thresholds:
                place = thresholds.index(count)
                reactor.callFromThread(reached[place].callback, None)
            return isEnd(event)

        following = follower.take("follow", until, "orders/#", after="OFFSET_FIRST")

        async def publish() -> list[Any]:
            outcomes = []
            for start in range(0, EVENTS, BATCH):
                batch = [Publication(TOPIC, str(n)) for n in range(start, start + BATCH)]
                outcomes += await publisher.call("publishMany", batch)
                [single] = await publisher.call(
                    "publishMany", [Publication(TOPIC, f"single {start}")]
                )
                outcomes.append(single)
            return outcomes

        publishing: Deferred[Any] = Deferred.fromCoroutine(publish())
        for each in reached:
            await DeferredList([each, publishing], fireOnOneCallback=True, fireOnOneErrback=True)
            daemon = await self.again(daemon)
        outcomes = await publishing
        last = await publisher.call("publish", TOPIC, END)
        followed = await following
        log = await follower.take("events", never, "orders/#")
        self.assertEqual(followed, log)
        self.assertEqual([each.sequence for each in log], [*range(1, len(log) + 1)])
        self.assertEqual([each for each in outcomes if not isinstance(each, Published)], [])
        ids = [each.eventId for each in (*outcomes, last)]
        self.assertEqual(sorted(ids), sorted(each.eventId for each in log))
        self.assertEqual(len({each.content for each in log}), len(log))


class AsyncClientTests(ClientTests):
    """
    Tests of the client for asyncio.
    """

    makeFace = Asyncio


class TwistedClientTests(ClientTests):
    """
    Tests of the client for Twisted.
    """

    makeFace = Twisted
