"""
The files of the console, as they are served.
"""

from __future__ import annotations

import json
import re
from gzip import decompress
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from twisted.python.filepath import FilePath
from twisted.web.test.requesthelper import DummyRequest

import svcbroker
import svcbroker.console
from svcbroker.console import CONTENT_SECURITY_POLICY, WebConsole, readFiles
from svcbroker.daemon.features import CONDITIONS
from svcbroker.errors import TABLE as ERRORS
from tests.carriers.http.support import BASE

from .support import CONSOLE, VENDOR, ConsoleTestCase, originOf

FOLDER = FilePath(svcbroker.console.__file__).parent()
MAX_PAGE = 190_000
"""The most that a page and all that it loads have, in bytes."""
_KEY = re.compile(r'^  "([^"]+)": "((?:[^"\\]|\\.)*)",$', re.MULTILINE)
_IMPORT = re.compile(r'(?:from|import\() ?"(\./[^"]+)"')


class ServingTests(ConsoleTestCase):
    """
    The page and what it loads.
    """

    def setUp(self) -> None:
        self.make()

    def test_pageNeedsNoCredentials(self) -> None:
        """The log-in is a part of it."""
        answer = self.ask(CONSOLE)
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["content-type"], "text/html;charset=UTF-8")
        self.assertTrue(answer.body.startswith(b"<!doctype html>"))

    def test_allFilesAreServedByType(self) -> None:
        """Each file has its type and the headers that restrict it."""
        files = readFiles()
        self.assertIn("vendor/preact-htm.js", files)
        for name, file in files.items():
            answer = self.ask(CONSOLE if name == "index.html" else f"{CONSOLE}/{name}")
            self.assertEqual((answer.status, answer.body), (200, file.body), name)
            self.assertEqual(answer.headers["content-type"], file.type)
            self.assertEqual(answer.headers["content-security-policy"], CONTENT_SECURITY_POLICY)
            self.assertEqual(answer.headers["x-content-type-options"], "nosniff")
            self.assertEqual(answer.headers["cache-control"], "no-cache")

    def test_policyAllowsNothingOfOthers(self) -> None:
        """Neither inline scripts nor other servers are allowed."""
        self.assertEqual(
            CONTENT_SECURITY_POLICY,
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
            "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
        )

    def test_keptFilesAreNotSentAgain(self) -> None:
        """A browser that has the file gets 304."""
        tag = self.ask(f"{CONSOLE}/app.js").headers["etag"]
        answer = self.ask(f"{CONSOLE}/app.js", headers={"If-None-Match": tag})
        self.assertEqual((answer.status, answer.body), (304, b""))
        self.assertEqual(answer.headers["etag"], tag)
        answer = self.ask(f"{CONSOLE}/app.js", headers={"If-None-Match": '"other"'})
        self.assertEqual(answer.status, 200)

    def test_filesAreCompressedForBrowsers(self) -> None:
        """A cache that keeps both tells them apart."""
        path = f"{CONSOLE}/app.js"
        plain = self.ask(path)
        for accepted in ("gzip", "br, gzip;q=0.5", "GZIP, deflate"):
            answer = self.ask(path, headers={"Accept-Encoding": accepted})
            self.assertEqual(answer.headers["content-encoding"], "gzip")
            self.assertEqual(decompress(answer.body), plain.body)
            self.assertLess(len(answer.body), len(plain.body) / 2)
            self.assertEqual(answer.headers["vary"], "Accept-Encoding")
            self.assertNotEqual(answer.headers["etag"], plain.headers["etag"])
            tag = {"Accept-Encoding": accepted, "If-None-Match": answer.headers["etag"]}
            self.assertEqual(self.ask(path, headers=tag).status, 304)
        for accepted in ("br", "gzip;q=0", "gzip;q=0.0, br", "x-gzip"):
            answer = self.ask(path, headers={"Accept-Encoding": accepted})
            self.assertNotIn("content-encoding", answer.headers)
            self.assertEqual(answer.body, plain.body)

    def test_headHasNoBody(self) -> None:
        """HEAD tells the length."""
        answer = self.ask(CONSOLE, "HEAD")
        self.assertEqual((answer.status, answer.body), (200, b""))
        self.assertEqual(int(answer.headers["content-length"]), len(self.ask(CONSOLE).body))

    def test_slashLeadsToPage(self) -> None:
        """The links of the page are relative to it."""
        answer = self.ask(f"{CONSOLE}/")
        self.assertEqual((answer.status, answer.headers["location"]), (308, "../console"))

    def test_addressesThatPeopleTypeLeadToThePage(self) -> None:
        """A browser gets no challenge, for which it would open a window, but the form."""
        for path in ("/", BASE, f"{BASE}/"):
            answer = self.ask(path)
            self.assertEqual(answer.status, 308, path)
            place = urljoin(f"http://h{path}", answer.headers["location"])
            self.assertEqual(place, f"http://h{CONSOLE}")
            self.assertNotIn("www-authenticate", answer.headers)
        for path in ("/favicon.ico", f"{BASE}/favicon.ico"):
            answer = self.ask(path)
            found = (answer.status, answer.headers["content-type"])
            self.assertEqual(found, (200, "image/svg+xml"), path)

    def test_pageBelowNoBasePathIsFound(self) -> None:
        nothing: Any = None
        console = WebConsole("", nothing, nothing, ())
        handlers = {each.path: each.handler for each in console.routes()}
        request = DummyRequest([])
        handlers["/"](request)
        self.assertEqual(request.responseHeaders.getRawHeaders("location"), ["console"])
        self.assertIn("/console", handlers)
        self.assertIn("/favicon.ico", handlers)

    def test_nothingElseIsServed(self) -> None:
        """No other file of the machine has a path."""
        for path in ("x.js", "../__init__.py", "vendor/", "vendor/LICENSE-htm", "%2e%2e/setup.py"):
            answer = self.ask(f"{CONSOLE}/{path}")
            self.assertIn(answer.status, (401, 404), path)

    def test_linksOfOtherSitesOpenThePage(self) -> None:
        """Following a link is no use of the interface, but loading files or asking is."""
        link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        self.assertEqual(self.ask(CONSOLE, headers=link).status, 200)
        script = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
        self.assertEqual(self.ask(CONSOLE, headers=script).status, 403)
        self.assertEqual(self.ask(f"{CONSOLE}/app.js", headers=script).status, 403)
        self.assertEqual(self.ask(f"{CONSOLE}/session", headers=link).status, 403)
        self.assertEqual(self.ask(f"{BASE}/rest/list", headers=link).status, 403)


class SourceTests(ConsoleTestCase):
    """
    What the files are.
    """

    def source(self, name: str) -> str:
        content: bytes = FOLDER.preauthChild(f"page/{name}").getContent()
        return content.decode("utf-8")

    def loaded(self, name: str) -> set[str]:
        """The files that a module loads, itself included."""
        found, waiting = {name}, [name]
        while waiting:
            each = waiting.pop()
            if each.startswith("vendor/"):
                continue
            new = {path[2:] for path in _IMPORT.findall(self.source(each))} - found
            # A page is loaded when it is shown.
            new -= {f"{path}.js" for path in self.pages()} if each == "app.js" else set()
            found |= new
            waiting += new
        return found

    def pages(self) -> list[str]:
        """The names of the pages."""
        return re.findall(r'^  (\w+): \(\) => import\("\./\1\.js"\),$', self.source("app.js"), re.M)

    def test_pagesAreSmall(self) -> None:
        """Each page is small with everything that it loads."""
        files = readFiles()
        self.assertIn("overview", self.pages())
        common = {"index.html", "style.css", "icon.svg", *self.loaded("app.js")}
        # Of the texts one language is loaded.
        texts = {"texts.en.js", "texts.zh.js"}
        self.assertLessEqual(texts, common)
        longest = max(texts, key=lambda name: len(files[name].body))
        for page in self.pages():
            names = common | self.loaded(f"{page}.js")
            # Only those load it who close or open an event.
            names.discard("vendor/age.js")
            if "chart.js" in names:
                names |= {"vendor/uplot.js", "vendor/uplot.css"}
            size = sum(len(files[name].body) for name in names - texts | {longest})
            self.assertLess(size, MAX_PAGE, page)

    def test_languagesHaveTheSameTexts(self) -> None:
        """Each text is there in each language, with the same values in it."""
        english, chinese = (
            dict(_KEY.findall(self.source(f"texts.{language}.js").partition("\n};")[0]))
            for language in ("en", "zh")
        )
        self.assertGreater(len(english), 20)
        self.assertEqual(list(english), list(chinese))
        for key, text in english.items():
            values = [sorted(re.findall(r"\{(\w+)\}", each)) for each in (text, chinese[key])]
            self.assertEqual(values[0], values[1], key)

    def test_alarmsAreToldInChinese(self) -> None:
        """Each alarm has its title, meaning and remedy; its page is one of the console."""
        told = self.table("alarms")
        self.assertEqual(sorted(told), sorted(each.name for each in CONDITIONS))
        self.assertEqual({len(texts) for texts in told.values()}, {3})
        self.assertLessEqual({each.page for each in CONDITIONS}, set(self.pages()))

    def table(self, name: str) -> dict[str, Any]:
        """A table of what the broker says, in Chinese."""
        text = self.source("texts.zh.js").partition(f"export const {name} = ")[2]
        found: dict[str, Any] = json.loads(re.sub(r",(\s*[}\]])", r"\1", text[: text.index(";\n")]))
        return found

    def test_sentencesOfTheBrokerAreToldInChinese(self) -> None:
        """
        Those of every alarm and of every error, with the same values in them; each one of the table
        is one of the broker.
        """
        told = self.table("told")
        sentences = {phrase for each in CONDITIONS for phrase in each.phrases}
        sentences |= {each.text for each in ERRORS}
        self.assertEqual(sentences - set(told), set())
        package = Path(svcbroker.__file__).parent
        files = [*package.rglob("*.py"), *package.rglob("verify.mjs")]
        code = "".join(each.read_text("utf-8") for each in files)
        # Long texts are in several parts.
        code = re.sub(r'"\s+f?"', "", code)
        stale: list[str] = []
        for english, chinese in told.items():
            parts = re.split(r"\{(\w+)\}", english)
            values = [sorted(re.findall(r"\{(\w+)\}", each)) for each in (english, chinese)]
            self.assertEqual(values[0], values[1], english)
            stale += [english for each in parts[::2] if each.strip(", ") not in code]
        self.assertEqual(stale, [])

    def test_textsAreThereAndUsed(self) -> None:
        """Each key in a page is a text, and each text is in a page."""
        keys = {key for key, _ in _KEY.findall(self.source("texts.en.js"))}
        names = [each.basename() for each in FOLDER.child("page").children()]
        code = "".join(
            self.source(name)
            for name in names
            if name.endswith(".js") and not name.startswith("texts.")
        )
        used = set(re.findall(r'\bt\("([^"]+)"', code))
        self.assertEqual(used - keys, set())
        families = set(re.findall(r"\bt\(`([\w.]+\.)\$", code))
        unused = {key for key in keys - used if not any(key.startswith(each) for each in families)}
        self.assertEqual({each for each in unused if f'"{each}"' not in code}, set())

    def test_vendoredFilesTellVersionAndHash(self) -> None:
        """In their first line: of which file of which package they are, and whether as a whole."""
        names = [path.name for path in VENDOR.iterdir() if not path.name.startswith("LICENSE-")]
        self.assertEqual(sorted(names), ["age.js", "preact-htm.js", "uplot.css", "uplot.js"])
        for name in names:
            origin, content = originOf(VENDOR / name)
            self.assertEqual(sha256(content).hexdigest(), origin.hash, name)

    def test_licencesAreThere(self) -> None:
        """What others have written comes with its licence."""
        for name in ("preact", "htm", "uplot", "age-encryption", "noble-curves", "scure-base"):
            licence = FOLDER.preauthChild(f"vendor/LICENSE-{name}").getContent()
            self.assertIn(b"opyright", licence)
