"""
Tests for C{svcbroker proof bundle}: the URL of an authority for time stamps.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.commands.bundle import splitCredentials
from svcbroker.commands.terminal import CommandError


class AuthorityTests(SynchronousTestCase):
    """
    Tests for L{splitCredentials}.
    """

    def test_credentialsAreNoPartOfTheUrl(self) -> None:
        """They may be quoted; the rest is kept as it is."""
        for url, expected in (
            ("https://tsa.example/a?b=%20", ("https://tsa.example/a?b=%20", None)),
            ("http://[::1]:318/", ("http://[::1]:318/", None)),
            (
                "https://ann:p%40ss@tsa.example:8443/",
                ("https://tsa.example:8443/", b"YW5uOnBAc3M="),
            ),
        ):
            where, authorization = expected
            value = None if authorization is None else b"Basic " + authorization
            self.assertEqual(splitCredentials(url), (where, value))

    def test_otherUrlsAreRefused(self) -> None:
        """It is said which are allowed."""
        for url in (
            *("tsa.example", "ftp://tsa.example/", "https://", "http://a:b/", "http://a:0/"),
            *("http://[::1/", "http://a b/", "http://ä.example/", ""),
        ):
            error = self.assertRaises(CommandError, splitCredentials, url)
            self.assertEqual(str(error), "--tsa: give a URL such as https://tsa.example/")
