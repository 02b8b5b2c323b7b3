"""
Tests for L{svcbroker.carriers.webhook.posting} and C{messages}: requests, answers, signatures.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from treq.testing import RequestTraversalAgent
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from svcbroker.carriers.webhook.posting import (
    MAX_ANSWER,
    NotAcknowledged,
    Payload,
    Poster,
    RequestForm,
    WebhookReceiver,
    checkAnswer,
    checkStatus,
    encodeBody,
    encodeEvents,
    parseUrl,
)
from svcbroker.carriers.webhook.signing import Secrets, WebhookSigner, parseSecrets
from svcbroker.interfaces import Batch
from svcbroker.model import Event, EventFormat, EventId, InterfaceType
from svcbroker.net.endpoints import AddressRefused
from svcbroker.net.http import HttpClient
from svcbroker.net.pem import ClientIdentity
from tests.net.test_http import FailingAgent

from .support import SECRET, SETTINGS

ID = "00000000-0000-4000-8000-000000000001"
EVENT = Event(
    topic='a"/\u007fb',
    content=b"\x00\xff",
    extensions={"svc-x": "ü\n"},
    eventId=EventId("0123abcd", 3, 7),
)
SETTINGS_SIGNED = evolve(SETTINGS, signer=WebhookSigner(parseSecrets(SECRET)))


class FakeReceiver(Resource):
    """Answers as it is told."""

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Any] = []
        self.bodies: list[bytes] = []
        self.status = 200
        self.headers: dict[bytes, bytes] = {}
        self.answer: bytes | int = b""

    def render(self, request: Any) -> Any:
        self.requests.append(request)
        self.bodies.append(request.content.read())
        request.setResponseCode(self.status)
        for name, value in self.headers.items():
            request.setHeader(name, value)
        return self.answer


class PosterTests(SynchronousTestCase):
    """
    Requests through a real agent, over memory.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.receiver = FakeReceiver()
        self.agent: Any = RequestTraversalAgent(self.receiver)
        self.settings = SETTINGS_SIGNED
        self.form = RequestForm(
            interfaceType=InterfaceType.RESTFUL, subscriptionId=ID, source="/b/1"
        )
        self.event = EVENT
        self.options: dict[str, Any] = {}

    def post(
        self, interfaceType: InterfaceType = InterfaceType.RESTFUL, agent: Any = None
    ) -> Deferred[None]:
        """Send the event."""
        client = HttpClient(agent or self.agent, self.clock)
        poster = Poster(lambda certificate: client, lambda: 1700000000.9, self.settings)
        receiver = WebhookReceiver(
            target=parseUrl("https://a.example/hook?x=%20y"),
            form=evolve(self.form, interfaceType=interfaceType),
            **self.options,
        )
        [message] = receiver.form.encode(Batch((self.event,), 1_700_000_000_042))
        posting = poster.post(receiver, (self.event,), message)
        self.agent.flush()
        return posting

    def refused(self, interfaceType: InterfaceType = InterfaceType.RESTFUL) -> NotAcknowledged:
        """Why it was not acknowledged."""
        error = self.failureResultOf(self.post(interfaceType), NotAcknowledged).value
        assert isinstance(error, NotAcknowledged)
        return error

    def test_requestIsPinned(self) -> None:
        """Headers and body, to the letter."""
        self.successResultOf(self.post())
        [request], [body] = self.receiver.requests, self.receiver.bodies
        self.assertEqual((request.method, request.uri), (b"POST", b"/hook?x=%20y"))
        headers = {
            name.lower(): values for name, values in request.requestHeaders.getAllRawHeaders()
        }
        self.assertEqual(headers[b"content-type"], [b"application/json"])
        self.assertEqual(headers[b"x-svc-timestamp"], [b"1700000000"])
        self.assertEqual(headers[b"x-svc-subscription-id"], [ID.encode()])
        self.assertEqual(headers[b"x-svc-event-id"], [b"0123abcd-3-7"])
        self.assertEqual(headers[b"content-length"], [b"%d" % len(body)])
        self.assertTrue(headers[b"user-agent"][0].startswith(b"svcbroker/"))
        self.assertNotIn(b"accept-encoding", headers)
        self.assertEqual(headers[b"webhook-id"], [b"0123abcd-3-7"])
        self.assertEqual(headers[b"webhook-timestamp"], [b"1700000000"])
        mac = hmac.new(SECRET, b"0123abcd-3-7.1700000000." + body, hashlib.sha256).digest()
        self.assertEqual(headers[b"webhook-signature"], [b"v1," + b64encode(mac)])
        digest = hmac.new(SECRET, b"1700000000." + body, hashlib.sha256).hexdigest()
        self.assertEqual(headers[b"x-svc-signature"], [b"v1=" + digest.encode()])
        event = {
            "topic": EVENT.topic,
            "content": "AP8=",
            "extensions": {"svc-x": "ü\n"},
            "eventId": "0123abcd-3-7",
        }
        self.assertEqual(json.loads(body), {"subscriptionId": ID, "event": event})

    def test_jsonRpcRequestWrapsTheSameParams(self) -> None:
        self.successResultOf(self.post(InterfaceType.JSON_RPC))
        rpc = json.loads(self.receiver.bodies[0])
        self.successResultOf(self.post())
        params = json.loads(self.receiver.bodies[1])
        self.assertEqual(
            rpc, {"jsonrpc": "2.0", "id": "0123abcd-3-7", "method": "onEvent", "params": params}
        )

    def sent(self) -> tuple[Mapping[bytes, bytes], bytes]:
        """The headers, by their names in lower case, and the body of the last request."""
        headers = self.receiver.requests[-1].requestHeaders.getAllRawHeaders()
        return {name.lower(): value for name, (value,) in headers}, self.receiver.bodies[-1]

    def checkSignature(self, headers: Mapping[bytes, bytes], body: bytes) -> None:
        mac = hmac.new(SECRET, b"0123abcd-3-7.1700000000." + body, hashlib.sha256).digest()
        self.assertEqual(headers[b"webhook-signature"], b"v1," + b64encode(mac))
        self.assertEqual(headers[b"webhook-id"], b"0123abcd-3-7")

    def test_structuredCloudEventIsTheBody(self) -> None:
        """By both interfaces. It is the body that is signed, and the status that acknowledges."""
        self.form = evolve(self.form, format=EventFormat.CLOUD_EVENTS)
        self.receiver.answer = b'{"error":{"code":1}}'
        for interfaceType in (InterfaceType.RESTFUL, InterfaceType.JSON_RPC):
            self.successResultOf(self.post(interfaceType))
            headers, body = self.sent()
            self.assertEqual(headers[b"content-type"], b"application/cloudevents+json")
            self.checkSignature(headers, body)
            self.assertEqual(
                json.loads(body),
                {
                    "specversion": "1.0",
                    "id": "0123abcd-3-7",
                    "source": "/b/1/a%22%2F%7Fb",
                    "type": "svc.event",
                    "time": "2023-11-14T22:13:20.042Z",
                    "datacontenttype": "application/octet-stream",
                    "svcextensions": '{"svc-x":"\\u00fc\\n"}',
                    "data_base64": "AP8=",
                },
            )

    def test_binaryCloudEventIsInHeaders(self) -> None:
        """The body is the content, and what HTTP cannot hold is percent-encoded."""
        self.form = evolve(self.form, format=EventFormat.BINARY_CLOUD_EVENTS)
        self.successResultOf(self.post())
        headers, body = self.sent()
        self.assertEqual(body, EVENT.content)
        self.checkSignature(headers, body)
        self.assertEqual(headers[b"content-type"], b"application/octet-stream")
        ce = {name: value for name, value in headers.items() if name.startswith(b"ce-")}
        self.assertEqual(
            ce,
            {
                b"ce-specversion": b"1.0",
                b"ce-id": b"0123abcd-3-7",
                b"ce-source": b"/b/1/a%2522%252F%257Fb",
                b"ce-type": b"svc.event",
                b"ce-time": b"2023-11-14T22:13:20.042Z",
                b"ce-svcextensions": b"{%22svc-x%22:%22\\u00fc\\n%22}",
            },
        )

    def test_binaryCloudEventHasItsPublishersAttributes(self) -> None:
        """As texts. Data without a type is JSON, which only its own format may leave out."""
        attributes = {"specversion": "1.0", "id": "ü 1", "source": "/s", "type": "t"}
        self.form = evolve(self.form, format=EventFormat.BINARY_CLOUD_EVENTS)
        for content, more, contentType in (
            (b"[1]", {"n": 7, "yes": True}, b"application/json"),
            (b"[1", {}, None),
            (b"", {}, None),
            (b"x", {"datacontenttype": 'a/b;c="ü"'}, 'a/b;c="ü"'.encode()),
        ):
            stored = json.dumps({**attributes, **more})
            self.event = replace(EVENT, content=content, extensions={"svc-ce": stored})
            self.successResultOf(self.post())
            headers, body = self.sent()
            self.assertEqual((body, headers.get(b"content-type")), (content, contentType))
            self.assertEqual(headers[b"ce-id"], b"%C3%BC%201")
            self.assertEqual(headers[b"ce-svceventid"], b"0123abcd-3-7")
            self.assertNotIn(b"ce-datacontenttype", headers)
            if "n" in more:
                self.assertEqual((headers[b"ce-n"], headers[b"ce-yes"]), (b"7", b"true"))

    def test_withoutSecretNoSignature(self) -> None:
        self.settings = SETTINGS
        self.successResultOf(self.post())
        for name in (b"x-svc-signature", b"webhook-signature"):
            self.assertFalse(self.receiver.requests[0].requestHeaders.hasHeader(name))

    def test_missingSecretOrCertificateSendsNothing(self) -> None:
        """A webhook that names a secret is never sent unsigned. It is no attempt."""
        for kind in ("secret", "certificate"):
            self.options = {kind: "gone"}
            error = self.refused()
            self.assertFalse(error.isAttempt)
            self.assertEqual(str(error), f"the operator's file has no {kind} gone")
            self.assertEqual(self.receiver.requests, [])

    def test_eachCertificateHasItsOwnConnections(self) -> None:
        """Those of one that was replaced are closed."""
        signer = WebhookSigner()
        made: list[ClientIdentity | None] = []
        closed: list[ClientIdentity | None] = []

        def makeClient(certificate: ClientIdentity | None) -> HttpClient:
            def close() -> Deferred[None]:
                closed.append(certificate)
                return succeed(None)

            made.append(certificate)
            return HttpClient(self.agent, self.clock, close)

        one, two = ClientIdentity({}), ClientIdentity({})
        poster = Poster(makeClient, self.clock.seconds, evolve(SETTINGS, signer=signer))
        message = Payload(b"", {})
        for name, certificate in (("", one), ("a", one), ("b", one), ("a", one), ("b", two)):
            signer.use(Secrets(certificates={"a": one, "b": certificate}))
            receiver = WebhookReceiver(
                target=parseUrl("https://a.example/"), form=self.form, certificate=name
            )
            posting = poster.post(receiver, (EVENT,), message)
            self.agent.flush()
            self.successResultOf(posting)
        self.assertEqual(made, [None, one, one, two])
        self.assertEqual(closed, [one])
        self.successResultOf(poster.close())
        self.assertEqual(closed[1:], [None, one, two])

    def test_headersOfWebhookAreSent(self) -> None:
        self.options = {"headers": {"Authorization": "Bearer x"}}
        self.successResultOf(self.post())
        sent = self.receiver.requests[0].requestHeaders
        self.assertEqual(sent.getRawHeaders(b"authorization"), [b"Bearer x"])

    def test_batchIsAcknowledgedWhole(self) -> None:
        """By an array of answers without an error, of JSON-RPC; otherwise by the status."""
        self.form = evolve(self.form, isBatch=True)
        for answer, isGood in [
            (b"", True),
            (b"[]", True),
            (b'[{"result":1},{"result":2}]', True),
            (b'{"result":1}', True),
            (b'[{"result":1},{"error":{}}]', False),
            (b"[1]", False),
        ]:
            self.receiver.answer = answer
            self.successResultOf(self.post())
            if isGood:
                self.successResultOf(self.post(InterfaceType.JSON_RPC))
            else:
                self.refused(InterfaceType.JSON_RPC)

    def test_only2xxAcknowledges(self) -> None:
        """A redirect is not followed."""
        for self.receiver.status in (200, 201, 202, 204, 299):
            self.successResultOf(self.post())
        self.receiver.headers = {b"location": b"http://127.0.0.1/inside"}
        for self.receiver.status in (300, 301, 302, 303, 307, 308, 400, 404, 410, 500, 503):
            before = len(self.receiver.requests)
            self.assertIn(str(self.receiver.status), str(self.refused()))
            self.assertEqual(len(self.receiver.requests), before + 1)

    def test_jsonRpcErrorIsNoAcknowledgement(self) -> None:
        """To REST the body says nothing."""
        for answer, isGood in [
            (b"", True),
            (b" \r\n", True),
            (b'{"jsonrpc":"2.0","id":"x","result":null}', True),
            (b'{"result":1,"error":null}', True),
            (b'{"error":{"code":-1,"message":"no"}}', False),
            (b'{"error":false}', False),
            (b"<html>", False),
            (b"[]", False),
            (b"\xff", False),
            (b"[" * 60000, False),
        ]:
            self.receiver.answer = answer
            self.successResultOf(self.post())
            if isGood:
                self.successResultOf(self.post(InterfaceType.JSON_RPC))
            else:
                self.refused(InterfaceType.JSON_RPC)

    def test_tooLargeAnswerFailsJsonRpc(self) -> None:
        """To REST the status was enough."""
        self.receiver.answer = b" " * (MAX_ANSWER + 1)
        self.assertIn(f"more than {MAX_ANSWER} bytes", str(self.refused(InterfaceType.JSON_RPC)))
        self.successResultOf(self.post())

    def test_retryAfterIsInSeconds(self) -> None:
        self.receiver.status = 503
        for text, seconds in [(b"120", 120), (b" 7 ", 7), (b"-1", 0), (b"1e9", 0), (b"9" * 30, 0)]:
            self.receiver.headers = {b"retry-after": text}
            self.assertEqual(self.refused().retryAfter, seconds)

    def test_silentReceiverTimesOut(self) -> None:
        self.receiver.answer = NOT_DONE_YET
        posting = self.post()
        self.clock.advance(SETTINGS.timeout - 0.1)
        self.assertNoResult(posting)
        self.clock.advance(0.1)
        self.failureResultOf(posting, NotAcknowledged)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_unfinishedBodyFailsJsonRpc(self) -> None:
        """To REST the status was enough."""
        for interfaceType in (InterfaceType.RESTFUL, InterfaceType.JSON_RPC):
            self.receiver.answer = NOT_DONE_YET
            posting = self.post(interfaceType)
            self.receiver.requests[-1].write(b"{")
            self.agent.flush()
            self.assertNoResult(posting)
            self.clock.advance(SETTINGS.timeout)
            if interfaceType is InterfaceType.RESTFUL:
                self.successResultOf(posting)
            else:
                self.failureResultOf(posting, NotAcknowledged)
            self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cancelledRequestIsNotAcknowledged(self) -> None:
        self.receiver.answer = NOT_DONE_YET
        posting = self.post()
        posting.cancel()
        failure = self.failureResultOf(posting, NotAcknowledged)
        self.assertFalse(failure.value.isAttempt)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_networkErrorsHaveWords(self) -> None:
        """The transport's own words may hold addresses."""
        for error, words in [
            (ConnectionRefusedError("secret"), "cannot be reached"),
            (
                AddressRefused(),
                "has no address and port that may be connected to (see --webhook-allow)",
            ),
        ]:
            failure = self.failureResultOf(self.post(agent=FailingAgent(error)), NotAcknowledged)
            self.assertEqual(str(failure.value), words)


class MessageTests(SynchronousTestCase):
    """
    Bytes.
    """

    @given(
        topic=st.text(max_size=20),
        content=st.binary(max_size=50),
        extensions=st.dictionaries(
            st.text(st.characters(codec="utf-8"), max_size=9),
            st.text(st.characters(codec="utf-8"), max_size=9),
        ),
    )
    def test_anyEventMakesJson(
        self, topic: str, content: bytes, extensions: dict[str, str]
    ) -> None:
        topic = topic.encode("utf-8", "replace").decode()
        event = replace(EVENT, topic=topic, content=content, extensions=extensions)
        [text] = encodeEvents([event])
        for interfaceType in (InterfaceType.RESTFUL, InterfaceType.JSON_RPC):
            told = json.loads(encodeBody(interfaceType, ID, event, text))
            params = told.get("params", told)
            self.assertEqual(params["event"]["topic"], topic)
            self.assertEqual(params["event"]["extensions"], extensions)

    @given(st.binary(max_size=200))
    def test_anyAnswerIsJudged(self, body: bytes) -> None:
        """Only an empty body or an object can acknowledge."""
        try:
            checkAnswer(body)
        except NotAcknowledged:
            return
        self.assertTrue(not body.strip() or body.strip().startswith(b"{"))

    @given(st.integers(), st.none() | st.text(max_size=9))
    def test_anyStatusIsJudged(self, status: int, retryAfter: str | None) -> None:
        """Only 2xx acknowledges, and the time to wait is bounded."""
        try:
            checkStatus(status, retryAfter)
        except NotAcknowledged as error:
            self.assertTrue(0 <= error.retryAfter < 10**6)
        else:
            self.assertEqual(status // 100, 2)
