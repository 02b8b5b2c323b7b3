"""
Tests of the page that shows the descriptions.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.http import HttpSettings
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
        self.ids: list[str] = []
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
        self.ids += [given["id"]] if "id" in given else []
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
        documents = {
            name: self.client.ask("GET", f"{self.base}/{name}").json()
            for name in ("openapi.json", "openrpc.json", "asyncapi.json")
        }
        for path, methods in documents["openapi.json"]["paths"].items():
            shown = {each["operationId"] for each in methods.values()} & set(self.page.ids)
            isShown = path != f"{self.base}/jsonrpc"
            self.assertEqual(len(shown), isShown, path)
            if isShown:
                self.assertIn(f" {path}", self.page.text)
        for method in documents["openrpc.json"]["methods"]:
            self.assertIn(f"jsonrpc.{method['name']}", self.page.ids)
        for name in documents["asyncapi.json"]["operations"]:
            self.assertIn(f"events.{name}", self.page.ids)
        for channel in documents["asyncapi.json"]["channels"].values():
            self.assertIn(channel["title"], self.page.text)

    def test_bodyOfACallIsShown(self) -> None:
        """Where it is not a form of the parameters."""
        _, _, call = self.page.text.partition(f"POST {self.base}/rest/cloudevents")
        self.assertIn("application/cloudevents+json", call.partition(self.base)[0])

    def test_linksLeadSomewhere(self) -> None:
        self.assertEqual(len(self.page.ids), len(set(self.page.ids)))
        for link in set(self.page.links):
            if link.startswith("#"):
                self.assertIn(link[1:], self.page.ids)
            else:
                self.assertEqual(self.client.ask("GET", link).status, 200, link)

    def test_nothingIsLoaded(self) -> None:
        """No element of the page loads anything, and its policy would not let it."""
        self.assertEqual(self.page.tags & EMBEDDING, set())
        self.assertEqual({"src", "srcset", "style"} & self.page.attributes, set())
        self.assertEqual([each for each in self.page.attributes if each.startswith("on")], [])
        self.assertNotIn("@import", self.html)
        self.assertNotIn("url(", self.html)

    def test_policyPermitsTheStyleAlone(self) -> None:
        [style] = re.findall("<style>(.*?)</style>", self.html, re.DOTALL)
        digest = b64encode(sha256(style.encode("utf-8")).digest()).decode("ascii")
        policy = self.answer.headers["content-security-policy"]
        self.assertIn(f"default-src 'none'; style-src 'sha256-{digest}';", policy)

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

    def test_bodyOfACallIsShown(self) -> None:
        """All its calls have forms; what only the main path has is not shown."""
        for name in ("cloudevents", "follow"):
            self.assertNotIn(f"{self.base}/rest/{name}", self.page.text)
