"""
Tests for L{svcbroker.carriers.webhook.posting}: URLs, and how others read them.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import URI

from svcbroker.carriers.webhook.posting import MAX_URL, parseUrl
from svcbroker.errors import UrlInvalid

PIECES = (
    *("http", "https", "ftp", "://", ":", "/", "//", "\\", "@", "?", "#", "%2f", "%", "[", "]"),
    *("::1", "127.0.0.1", "127.1", "a.example", "A.", "80", "0", "99999", "..", ";", "\t", "\n"),
    *(" ", "\x00", "ü", "&", "=", "user", "{", "^"),
)


class ParseTests(SynchronousTestCase):
    """
    Which URLs there can be.
    """

    def test_urlHasOneForm(self) -> None:
        for text, url in [
            ("http://a.example", "http://a.example:80/"),
            ("HTTPS://A.Example./x/y?z=%20&a=b", "https://a.example:443/x/y?z=%20&a=b"),
            ("http://a:8080?x", "http://a:8080/?x"),
            ("http://1.2.3.4:1/", "http://1.2.3.4:1/"),
            ("https://[2606:4700:0::1111]/", "https://[2606:4700::1111]:443/"),
            ("http://[::FFFF:1.2.3.4]:65535/", "http://[::ffff:102:304]:65535/"),
            ("http://[::ffff:0.0.0.1]/", "http://[::ffff:0:1]:80/"),
            ("http://a//b@c:d;e", "http://a:80//b@c:d;e"),
        ]:
            self.assertEqual(parseUrl(text).url, url)

    def test_ambiguousUrlIsRefused(self) -> None:
        """A host that readers of URLs disagree on, and credentials."""
        for text in (
            *(
                "",
                "a.example",
                "//a.example",
                "http:",
                "http:///x",
                "http:/a",
                "ftp://a/",
                "file:///",
            ),
            *("http://u:p@a/", "http://u@a/", "http://@a/", "http://a:b@c:80/", "http://a\\@b/"),
            *("http://a/#x", "http://a#", "http://a b/", "http://a/ ", " http://a/", "http://a/\n"),
            *("http://a\t/", "http://a:0/", "http://a:65536/", "http://a:/", "http://a:x/"),
            *(
                "http://a:+80/",
                "http://a:\uff18\uff10/",
                "http://[::1",
                "http://::1/",
                "http://[::1%25lo]/",
            ),
            *("http://[1.2.3.4]/", "http://[v1.x]/", "http://127.1/", "http://0x7f000001/"),
            *("http://2130706433/", "http://0177.0.0.1/", "http://1.2.3.4.5/", "http://a..b/"),
            *("http://bücher.example/", "http://a/ü", "http://a/%zz", "http://a/{x}", 'http://a/"'),
            *("http://a/" + "x" * MAX_URL, "http://ⓔxample.com/", "javascript://a/"),
        ):
            self.assertRaises(UrlInvalid, parseUrl, text)

    @given(st.lists(st.sampled_from(PIECES), max_size=9).map("".join) | st.text(max_size=40))
    @example("http://a.example:80\\@b.example/")
    def test_allParsersAgreeOnHost(self, text: str) -> None:
        """
        Whatever comes through is read alike by Python and by Twisted, has the host that was
        judged, and comes out of its own form again.
        """
        try:
            target = parseUrl(text)
        except UrlInvalid:
            return
        parts = urlsplit(target.url)
        uri = URI.fromBytes(target.url.encode("ascii"))
        self.assertEqual(parts.hostname, target.host)
        self.assertEqual(uri.host.decode("ascii"), target.host)
        self.assertEqual((parts.port, uri.port), (target.port, target.port))
        self.assertEqual(uri.originForm.decode("ascii"), target.path)
        self.assertEqual(parseUrl(target.url), target)
