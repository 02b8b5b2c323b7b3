"""
Tests of the page that links the descriptions.
"""

from __future__ import annotations

import json
from html.parser import HTMLParser

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.operations import WEEVENT, WEEVENT_INTERFACE

from .support import BASE, Client

VOID = {"meta"}
EMBEDDING = {"base", "embed", "form", "frame", "iframe", "img", "link", "object", "script"}
"""Elements that load something, or that do something without the reader."""


class _Reader(HTMLParser):
    """Reads a page, and checks that its elements are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        self.attributes |= set(given)
        self.links += [given["href"]] if "href" in given else []
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        self.text += data


class PageTests(SynchronousTestCase):
    """The page of the broker's own path."""

    base = BASE

    def setUp(self) -> None:
        settings = HttpSettings(basePath=BASE)
        self.client = Client(settings, dialects={WEEVENT.basePath: WEEVENT_INTERFACE})
        self.answer = self.client.ask("GET", f"{self.base}/docs")
        self.html = self.answer.body.decode("utf-8")
        self.page = _Reader(self.html)

    def test_everyCallIsShown(self) -> None:
        document = self.client.ask("GET", f"{self.base}/openapi.json").json()
        for path, methods in document["paths"].items():
            self.assertIn(f" {path}", self.page.text)
            for method in methods.values():
                self.assertIn(method["summary"], self.page.text)

    def test_documentsAreLinked(self) -> None:
        names = ("openapi.json", "openrpc.json", "asyncapi.json")
        self.assertEqual(self.page.links, [f"{self.base}/{name}" for name in names])

    def test_linksLeadSomewhere(self) -> None:
        for link in self.page.links:
            self.assertEqual(self.client.ask("GET", link).status, 200, link)

    def test_nothingIsLoaded(self) -> None:
        """No element of the page loads anything, and its policy would not let it."""
        self.assertEqual(self.page.tags & EMBEDDING, set())
        self.assertEqual({"src", "srcset", "style"} & self.page.attributes, set())
        self.assertEqual([each for each in self.page.attributes if each.startswith("on")], [])
        self.assertNotIn("@import", self.html)
        self.assertNotIn("url(", self.html)

    def test_policyPermitsNothing(self) -> None:
        self.assertNotIn("style", self.page.tags)
        policy = self.answer.headers["content-security-policy"]
        self.assertTrue(policy.startswith("default-src 'none'; base-uri 'none';"))

    def test_answerIsHTML(self) -> None:
        """Also by HEAD. No proxy's guess and no frame of another site are wanted."""
        headers = self.answer.headers
        self.assertEqual(headers["content-type"], "text/html;charset=UTF-8")
        self.assertEqual(headers["x-content-type-options"], "nosniff")
        self.assertIn("frame-ancestors 'none'", headers["content-security-policy"])
        head = self.client.ask("HEAD", f"{self.base}/docs")
        self.assertEqual({**head.headers, "date": ""}, {**headers, "date": ""})

    def test_markupOfDocstringsIsNotShown(self) -> None:
        """Neither here nor in the documents. What is said of a member is at the member."""
        self.assertNotIn("@ivar", self.html)
        openapi = self.client.ask("GET", f"{self.base}/openapi.json").json()
        self.assertNotRegex(json.dumps(openapi), r"@ivar|\b[CL]\{")
        path = openapi["components"]["schemas"]["CheckpointFields"]["properties"]["path"]
        self.assertIn("the way from the hash", path["description"])


class DialectPageTests(PageTests):
    """The page of a dialect's own path."""

    base = WEEVENT.basePath

    def test_titleNamesTheDialect(self) -> None:
        self.assertIn("dialect weevent-1.1", self.page.text)

    def test_callsOfTheMainPathAreNotShown(self) -> None:
        for name in ("cloudevents", "follow"):
            self.assertNotIn(f"{self.base}/rest/{name}", self.page.text)
