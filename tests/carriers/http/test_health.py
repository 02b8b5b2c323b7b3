"""
Tests of C{/healthz} and C{/readyz}.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.errors import LedgerUnavailable

from .support import Client


class HealthTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.client = Client()

    def test_healthzIsAlive(self) -> None:
        answer = self.client.ask("GET", "/healthz")
        self.assertEqual((answer.status, answer.json()), (200, {"status": "alive"}))

    def test_readyzTellsOfEachGroup(self) -> None:
        answer = self.client.ask("GET", "/readyz")
        self.assertEqual(answer.status, 200)
        ready = {"ready": True, "reason": ""}
        groups = {"1": ready, "2": ready}
        self.assertEqual(answer.json(), {"status": "ready", "groups": groups, "alarms": []})

    def test_oneUnavailableGroupIsNotReady(self) -> None:
        self.client.fixture.second.error = LedgerUnavailable("the disk is full")
        answer = self.client.ask("GET", "/readyz")
        self.assertEqual((answer.status, answer.json()["status"]), (503, "unavailable"))
        self.assertEqual(
            answer.json()["groups"]["2"], {"ready": False, "reason": "the disk is full"}
        )
