"""
Tests for what C{subscribe} takes beside the published parameters, and how it is kept.
"""

from __future__ import annotations

import json
from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from svcbroker import errors
from svcbroker.access import ANYBODY
from svcbroker.carriers.webhook.delivery import KIND
from svcbroker.carriers.webhook.signing import WebhookSigner, parseSecrets
from svcbroker.model import EventFormat
from svcbroker.net.pem import ClientIdentity
from svcbroker.operations import OPERATIONS, bindJSON, bindText
from tests.broker.support import connected

from .support import SETTINGS, URL, Harness

ID = "00000000-0000-4000-8000-00000000000a"
SECRETS = evolve(
    parseSecrets(b"mine = whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    certificates={name: ClientIdentity({}) for name in ("shop", "bank", "alice/own")},
)
EARLIER = (
    b'{"interfaceType":"RESTful","group":"1","filters":["a"],"tag":null,'
    b'"url":"http://93.184.215.14:80/hook","start":[1,-1],"account":""}'
)
"""A webhook without options, as releases before these options have written it."""


class OptionTests(SynchronousTestCase):
    """
    Headers, secrets, batches, attempts and dead letters, through the operations.
    """

    def setUp(self) -> None:
        self.harness = Harness(self, evolve(SETTINGS, signer=WebhookSigner(SECRETS)))
        self.harness.open("a", "dead")
        [operation] = (each for each in OPERATIONS if each.name == "subscribe")
        self.text = connected(bindText(operation, self.harness.calls))
        self.json = connected(bindJSON(operation, self.harness.calls))

    def ask(self, **given: Any) -> Any:
        """Subscribe by JSON-RPC."""
        answer = self.json(ANYBODY, {"topic": "a", "url": URL, "subscriptionId": ID, **given})
        self.harness.settle()
        return self.successResultOf(answer)

    def refused(self, **given: Any) -> str:
        """What is said to wrong options."""
        try:
            answer = self.json(ANYBODY, {"topic": "a", "url": URL, **given})
        except errors.ParameterInvalid as error:
            return error.message
        return str(self.failureResultOf(answer, errors.ParameterInvalid).value)

    def test_optionsSurviveRestarts(self) -> None:
        options: dict[str, Any] = {
            "headers": {"Authorization": "Bearer x"},
            "secret": "mine",
            "batch": 7,
            "batchSeconds": 3,
            "maxAttempts": 5,
            "deadLetter": "dead",
            "format": "cloudevents",
            "erased": "tombstone",
        }
        self.assertEqual(self.ask(**options), ID)
        for _ in range(2):
            [webhook] = self.harness.webhooks._webhooks.values()
            self.assertEqual(webhook.record.headers, {"authorization": "Bearer x"})
            page = self.harness.webhooks.listWebhooks(ANYBODY, "1")
            [status] = self.successResultOf(page).items
            self.assertEqual((status.secret, status.batch, status.batchSeconds), ("mine", 7, 3))
            self.assertEqual((status.maxAttempts, status.deadLetter), (5, "dead"))
            self.assertIs(status.format, EventFormat.CLOUD_EVENTS)
            self.assertTrue(status.hasTombstones)
            self.harness.kill()
            self.harness.start()
            self.harness.settle()
        self.harness.publish("1")
        self.harness.settle(5.0)
        receiver = self.harness.poster.posts[0].receiver
        self.assertEqual(receiver.headers, {"authorization": "Bearer x"})
        self.assertEqual(receiver.secret, "mine")
        self.assertIs(receiver.form.format, EventFormat.CLOUD_EVENTS)
        self.assertNotIn("Bearer", repr(receiver))

    def test_restTakesHeadersAsJSON(self) -> None:
        """By both interfaces it is the same webhook."""
        fields = {
            b"topic": b"a",
            b"url": URL.encode(),
            b"subscriptionId": ID.encode(),
            b"headers": b'{"X-Key": "k"}',
            b"batch": b"2",
            b"maxAttempts": b"3",
        }
        for _ in range(2):
            answer = self.text(ANYBODY, fields)
            self.harness.settle()
            self.assertEqual(self.successResultOf(answer), ID)
        [webhook] = self.harness.webhooks._webhooks.values()
        self.assertEqual(webhook.record.headers, {"x-key": "k"})
        self.assertEqual((webhook.record.batch, webhook.record.batchSeconds), (2, 1))

    def test_otherOptionsUnderUsedIdAreRefused(self) -> None:
        self.ask(headers={"a": "1"}, batch=2)
        self.ask(headers={"A": "1"}, batch=2)
        for other in (
            {},
            {"headers": {"a": "2"}, "batch": 2},
            {"headers": {"a": "1"}, "batch": 3},
            {"headers": {"a": "1"}, "batch": 2, "maxAttempts": 3},
            {"headers": {"a": "1"}, "batch": 2, "format": "cloudevents"},
        ):
            given = {"topic": "a", "url": URL, "subscriptionId": ID, **other}
            self.failureResultOf(self.json(ANYBODY, given), errors.SubscriptionExists)

    def test_wrongOptionsAreRefused(self) -> None:
        """The message names the parameter, and does not show headers."""
        cases: list[dict[str, Any]] = [
            *({"headers": wrong} for wrong in ("secret", ["secret"], {"a": 1}, {"a b": "secret"})),
            *({"secret": wrong} for wrong in ("other", 1)),
            *({"batch": wrong} for wrong in (0, 1001, "secret", 1.5)),
            {"batchSeconds": 1},
            *({"batchSeconds": wrong, "batch": 2} for wrong in (-1, 61)),
            *({"maxAttempts": wrong} for wrong in (0, 1001)),
            {"deadLetter": "dead"},
            *({"format": wrong} for wrong in ("other", "CloudEvents", 1)),
            {"format": "cloudevents-binary", "batch": 2},
        ]
        for case in cases:
            message = self.refused(**case)
            self.assertTrue(message.startswith(f"{next(iter(case))}: "), message)
            if "headers" in case:
                self.assertNotIn("secret", message)
        for raw in (b"{secret", b"secret", b'["secret"]', b"\xff"):
            fields = {b"topic": b"a", b"url": URL.encode(), b"headers": raw}
            error = self.assertRaises(errors.ParameterInvalid, self.text, ANYBODY, fields)
            self.assertNotIn("secret", error.message)

    def test_certificateIsOneThatTheAccountMayUse(self) -> None:
        """The message has the names. Only https has certificates."""
        for name in ("other", "alice/own"):
            message = self.refused(url="https://93.184.215.14/", certificate=name)
            self.assertEqual(message, "certificate: those that this account may use are bank, shop")
        self.assertEqual(self.refused(certificate="bank"), "certificate: it needs a url with https")
        self.ask(url="https://93.184.215.14/", certificate="bank")
        self.harness.kill()
        self.harness.start()
        self.harness.publish("1")
        self.assertEqual(self.harness.poster.posts[0].receiver.certificate, "bank")
        [status] = self.successResultOf(self.harness.webhooks.listWebhooks(ANYBODY, "1")).items
        self.assertEqual(status.certificate, "bank")

    def test_boundNamesTheCallsThatHelp(self) -> None:
        self.harness.kill()
        self.harness.settings = evolve(SETTINGS, maxWebhooks=1)
        self.harness.start()
        self.successResultOf(self.harness.subscribe())
        message = str(self.failureResultOf(self.harness.subscribe(), errors.Overloaded).value)
        self.assertIn("listWebhooks", message)
        self.assertIn("unSubscribe", message)


class RecordTests(SynchronousTestCase):
    """
    The entries of the metadata store.
    """

    def test_webhookOfEarlierReleaseIsResumed(self) -> None:
        harness = Harness(self)
        harness.open("a")
        harness.kill()
        harness.disk.kept[KIND, ID] = EARLIER
        harness.start()
        harness.publish("1")
        self.assertEqual(harness.poster.contents, ["1"])
        self.assertFalse(harness.poster.posts[0].receiver.form.isBatch)
        self.assertIs(harness.poster.posts[0].receiver.form.format, EventFormat.SVC)

    def test_webhookWithoutOptionsIsKeptAsBefore(self) -> None:
        """An earlier release reads it."""
        harness = Harness(self)
        harness.open("a")
        self.successResultOf(harness.subscribe(subscriptionId=ID))
        kept = json.loads(harness.disk.kept[KIND, ID])
        self.assertLessEqual(set(kept), set(json.loads(EARLIER)))
