"""
Tests of how REST reads the fields of a query string and a form.
"""

from __future__ import annotations

from urllib.parse import quote_from_bytes, unquote_to_bytes

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.http.plain import MAX_FORM_FIELDS, decodePercent, parseFields, parseForm
from svcbroker.errors import ParameterInvalid

FORM = b"application/x-www-form-urlencoded"


class FieldsTests(SynchronousTestCase):
    def test_fieldsAreDecoded(self) -> None:
        for text, fields in (
            (b"", {b"": b""}),
            (b"a=1&b=2", {b"a": b"1", b"b": b"2"}),
            (b"a=1&a=2", {b"a": b"1"}),
            (b"a=+%2B%26%3D", {b"a": b" +&="}),
            (b"a=b=c", {b"a": b"b=c"}),
            (b"a", {b"a": b""}),
            (b"%61=%FF", {b"a": b"\xff"}),
            (b"a=%zz%", {b"a": b"%zz%"}),
        ):
            self.assertEqual(parseFields(text), fields)

    def test_tooManyFieldsAreRefused(self) -> None:
        self.assertEqual(
            len(parseFields(b"&".join(b"%d" % n for n in range(MAX_FORM_FIELDS)))), 1000
        )
        with self.assertRaises(ParameterInvalid):
            parseFields(b"&" * MAX_FORM_FIELDS)

    @given(st.binary(), st.binary(min_size=1))
    def test_anyQuotedBytesAreDecoded(self, name: bytes, value: bytes) -> None:
        text = b"x=1&" + f"{quote_from_bytes(name)}=".encode() + quote_from_bytes(value).encode()
        if name != b"x":
            self.assertEqual(parseFields(text)[name], value)

    @given(
        st.lists(st.sampled_from([b"%", b"\\", b"x", b"4", b"aF", b"\n", b"'", b"\x80", b"\xff"]))
    )
    def test_wrongPercentSignsStay(self, pieces: list[bytes]) -> None:
        text = b"".join(pieces)
        self.assertEqual(decodePercent(text), unquote_to_bytes(text))


class FormTests(SynchronousTestCase):
    def test_formsOfEachSpelling(self) -> None:
        for contentType in (FORM, FORM + b"; charset=UTF-8", FORM.upper()):
            self.assertEqual(parseForm(b"", contentType, b"a=1"), {b"a": b"1"})

    def test_queryStringComesFirst(self) -> None:
        self.assertEqual(parseForm(b"a=1", FORM, b"a=2&b=3"), {b"a": b"1", b"b": b"3"})

    def test_typeOfNoBodyIsIgnored(self) -> None:
        for contentType in (None, b"application/json"):
            self.assertEqual(parseForm(b"a=1", contentType, b""), {b"a": b"1"})

    def test_otherBodiesAreRefused(self) -> None:
        for contentType in (None, b"application/json", b"multipart/form-data; boundary=x"):
            with self.assertRaises(ParameterInvalid):
                parseForm(b"", contentType, b"{}")
