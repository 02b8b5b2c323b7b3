"""
Tests for L{svcbroker.carriers.webhook.posting}: the headers that clients may add.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.webhook.posting import MAX_HEADERS, MAX_SIZE, checkHeaders
from svcbroker.errors import ParameterInvalid

SECRET = "Bearer do-not-tell"


class HeaderTests(SynchronousTestCase):
    """
    Which headers there may be.
    """

    def test_headersAreTakenInOneForm(self) -> None:
        self.assertEqual(
            list(checkHeaders({"X-Api-Key": "a b\tc", "Authorization": SECRET}).items()),
            [("authorization", SECRET), ("x-api-key", "a b\tc")],
        )

    def test_headersOfBrokerAndOfHttpAreRefused(self) -> None:
        for name in (
            *("Host", "content-length", "Content-Type", "Transfer-Encoding", "Connection", "TE"),
            *("Webhook-Id", "webhook-signature", "X-Svc-Signature", "ce-Id", "Proxy-Authorization"),
            *("X-Forwarded-For", "Expect", "User-Agent", "Upgrade"),
        ):
            self.assertRaises(ParameterInvalid, checkHeaders, {name: "x"})

    def test_malformedHeadersAreRefused(self) -> None:
        """The error never shows a value."""
        many = {f"x-{number}": "x" for number in range(MAX_HEADERS + 1)}
        for headers in (
            *({"": SECRET}, {"a b": SECRET}, {"a:": SECRET}, {"a\n": SECRET}, {"ü": SECRET}),
            *({"a": ""}, {"a": f"{SECRET}\r\nHost: b"}, {"a": f" {SECRET}"}, {"a": f"{SECRET}\n"}),
            *({"a": SECRET + "ü"}, {"a": SECRET, "A": SECRET}, {"a": "x" * MAX_SIZE}, many),
        ):
            error = self.assertRaises(ParameterInvalid, checkHeaders, headers)
            self.assertNotIn("do-not-tell", str(error))

    @given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3))
    def test_anyTextIsTakenOrRefused(self, headers: dict[str, str]) -> None:
        """What is taken is a line of ASCII."""
        try:
            checked = checkHeaders(headers)
        except ParameterInvalid:
            return
        for name, value in checked.items():
            self.assertTrue((name + value).isascii())
            self.assertFalse(set(name + value) & set("\r\n\0"))
