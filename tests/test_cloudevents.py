"""
CloudEvents 1.0: what is read and written.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.errors import ParameterInvalid
from svcbroker.interfaces import Batch
from svcbroker.model import Event, EventFormat, EventId
from svcbroker.operations import (
    CLOUD_EVENT_EXTENSION,
    CLOUD_EVENT_TYPE,
    CloudEvent,
    eventWriter,
    readCloudEvent,
)
from tests import examples

REQUIRED = {"specversion": "1.0", "id": "7", "source": "/s", "type": "t"}
OURS = {"svceventid": "0cc175b9-1-2", "svcsource": "/b/1/a%2Fb"}


def readStructured(members: Mapping[str, object], contentType: str = "") -> CloudEvent:
    """What an event in structured mode is read as."""
    body = json.dumps(members).encode()
    return readCloudEvent((), (contentType or CLOUD_EVENT_TYPE).encode(), body)


def readBinary(
    headers: Mapping[str, str], body: bytes = b"", contentType: str | None = None
) -> CloudEvent:
    """What an event in binary mode is read as."""
    named = [(f"ce-{name}", value.encode("utf-8")) for name, value in headers.items()]
    return readCloudEvent(named, None if contentType is None else contentType.encode(), body)


def written(content: bytes, extensions: Mapping[str, str], topic: str = "a/b") -> dict[str, Any]:
    """How an event is written, as its receiver reads it."""
    event = Event(
        topic=topic, content=content, extensions=extensions, eventId=EventId("0cc175b9", 1, 2)
    )
    [record] = eventWriter(EventFormat.CLOUD_EVENTS, "/b", "1")(Batch([event], 1_700_000_000_042))
    text = msgspec.json.encode(record)
    assert b"\n" not in text
    read: dict[str, Any] = json.loads(text)
    return read


def sentOn(event: CloudEvent) -> dict[str, Any]:
    """How an event that was read is written."""
    return written(event.content, {CLOUD_EVENT_EXTENSION: event.attributes})


def dataOf(members: Mapping[str, Any]) -> bytes:
    """The data of an event in structured mode."""
    if "data_base64" in members:
        return b64decode(members["data_base64"])
    data = members.get("data", "")
    return data.encode() if isinstance(data, str) else json.dumps(data).encode()


class ReadingTests(SynchronousTestCase):
    def test_structuredEventIsSentOnAsItCame(self) -> None:
        members = {
            **REQUIRED,
            "datacontenttype": "application/json",
            "dataschema": "http://e.example/schema",
            "subject": "é\U0001f600",
            "time": "2026-11-22T08:48:00.123456789+01:00",
            "counter": -7,
            "flag": True,
            "data": {"a": [1, None, 1.5]},
        }
        for contentType in ("", "Application/CloudEvents+JSON; charset=UTF-8"):
            event = readStructured(members, contentType)
            self.assertEqual(event.content, b'{"a": [1, null, 1.5]}')
            self.assertEqual(sentOn(event), {**members, **OURS})

    def test_binaryEventIsSentOnAsItCame(self) -> None:
        headers = {**REQUIRED, "subject": "100%25%20%C3%A9%F0%9F%98%80", "x": '"a \\"b\\""'}
        event = readBinary(headers, b"\xff\0", "image/png")
        self.assertEqual(event.content, b"\xff\0")
        self.assertEqual(
            sentOn(event),
            {
                **REQUIRED,
                **OURS,
                "subject": "100% é\U0001f600",
                "x": 'a "b"',
                "datacontenttype": "image/png",
                "data_base64": "/wA=",
            },
        )

    def test_dataIsWrittenByItsType(self) -> None:
        """As JSON, as text, or as Base64 where it is neither."""
        for contentType, body, expected in (
            ("application/json", b'{"a":\r\n 1}', {"data": {"a": 1}}),
            ("application/a+json; charset=utf-8", b"null", {"data": None}),
            ("application/json", b"{", {"data_base64": "ew=="}),
            ("application/json", b'"\xff"', {"data_base64": "Iv8i"}),
            ("text/plain", b"a\nb", {"data": "a\nb"}),
            ("text/plain", b"\xff", {"data_base64": "/w=="}),
            ("text/plain; charset=latin-1", b"ab", {"data_base64": "YWI="}),
            ("application/xml", b"<a/>", {"data": "<a/>"}),
            ("application/octet-stream", b"ab", {"data_base64": "YWI="}),
            (None, b"1", {"data": 1}),
            (None, b"ab", {"data_base64": "YWI="}),
            ("text/plain", b"", {}),
        ):
            sent = sentOn(readBinary(REQUIRED, body, contentType))
            self.assertEqual(
                {k: sent[k] for k in sent if k.startswith("data_") or k == "data"}, expected
            )

    def test_digitsOfNumbersStay(self) -> None:
        body = json.dumps({**REQUIRED, "data": 0}).encode()[:-2] + b"12345678901234567890.10}"
        event = readCloudEvent((), CLOUD_EVENT_TYPE.encode(), body)
        self.assertEqual(event.content, b"12345678901234567890.10")

    def test_stringIsStoredAsUtf8(self) -> None:
        for contentType in ("text/plain", "application/xml", "image/svg"):
            event = readStructured({**REQUIRED, "datacontenttype": contentType, "data": "é"})
            self.assertEqual(event.content, "é".encode())

    def test_nullAttributeIsAbsent(self) -> None:
        sent = sentOn(readStructured({**REQUIRED, "subject": None}))
        self.assertEqual(sent, {**REQUIRED, **OURS})

    def test_attributesOfTheBrokerAreIgnored(self) -> None:
        sent = sentOn(readBinary({**REQUIRED, "svceventid": "x", "svcextensions": "{}"}))
        self.assertEqual(sent, {**REQUIRED, **OURS})

    def test_wrongAttributeIsRefusedByName(self) -> None:
        for name, value, message in (
            ("specversion", None, "specversion: is required"),
            ("specversion", "0.3", "specversion: is not 1.0: 0.3"),
            ("specversion", 1.0, "specversion: is not a string"),
            ("specversion", 10**400, "specversion: is not a string"),
            ("x" * 999, 1.5, f"{100 * 'x'}: is not a string, a whole number or a Boolean"),
            ("id", None, "id: is required"),
            ("id", "", "id: is not a text of one character or more"),
            ("id", 7, "id: is not a string"),
            ("source", "a b", "source: is not a URI-reference: a b"),
            ("source", "%g0", "source: is not a URI-reference: %g0"),
            ("source", "", "source: is not a URI-reference"),
            ("type", "", "type: is not a text of one character or more"),
            ("subject", "", "subject: is not a text of one character or more"),
            ("subject", "a\nb", "subject: has characters that CloudEvents does not allow"),
            ("subject", "\ufffe", "subject: has characters that CloudEvents does not allow"),
            ("time", "yesterday", "time: is not a time of RFC 3339: yesterday"),
            (
                "time",
                "2026-02-30T00:00:00Z",
                "time: is not a time of RFC 3339: 2026-02-30T00:00:00Z",
            ),
            ("time", "1700000000000", "time: is not a time of RFC 3339: 1700000000000"),
            ("datacontenttype", "json", "datacontenttype: is not a media type: json"),
            ("dataschema", "/a", "dataschema: is not an absolute URI: /a"),
            ("Upper", "x", "Upper: an attribute's name has lower-case letters and digits only"),
            ("a_b", "x", "a_b: an attribute's name has lower-case letters and digits only"),
            ("", "x", ": an attribute's name has lower-case letters and digits only"),
            ("x", 2**31, "x: has more than 32 bits"),
            ("x", 1.5, "x: is not a string, a whole number or a Boolean"),
            ("x", [], "x: is not a string, a whole number or a Boolean"),
        ):
            error = self.assertRaises(ParameterInvalid, readStructured, {**REQUIRED, name: value})
            self.assertEqual(error.message, message)
            if isinstance(value, str) and value.isprintable() and name.islower():
                if name == "datacontenttype":
                    args: tuple[Any, ...] = (REQUIRED, b"", value)
                else:
                    args = ({**REQUIRED, name: quote(value)},)
                error = self.assertRaises(ParameterInvalid, readBinary, *args)
                self.assertEqual(error.message, message)

    def test_mediaTypesHaveParameters(self) -> None:
        for text in ("a/b;c=d", 'a/b ; c="d;\\" e" ;f=g', "a/b;", "a/b; ;c=d ", "a/b+c"):
            self.assertEqual(sentOn(readBinary(REQUIRED, b"", text))["datacontenttype"], text)
        for text in ("a", "a/", "/b", "a/b c", "a/b;c", "a/b;c=", 'a/b;c="d', "a/b;c=d e"):
            self.assertRaises(ParameterInvalid, readBinary, REQUIRED, b"", text)

    def test_longWrongAttributesAreRefusedQuickly(self) -> None:
        """A match does not take longer than the text is long."""
        for name, start, piece, end in (
            ("datacontenttype", "a/b", ";  ", "x y"),
            ("datacontenttype", "a/b;", " ", "="),
            ("datacontenttype", "a/b", ';c="d"', "="),
            ("datacontenttype", 'a/b;c="', "\\a", ""),
            ("source", "", "%41#", "#"),
            ("source", "", "%41/", "^"),
            ("dataschema", "", "a:", "^"),
            ("time", "2026-11-22T00:00:00.", "1", "Z"),
        ):
            members = {**REQUIRED, name: start + piece * 100_000 + end}
            error = self.assertRaises(ParameterInvalid, readStructured, members)
            self.assertEqual(error.message.partition(":")[0], name)

    def test_wrongDataIsRefused(self) -> None:
        text = {**REQUIRED, "datacontenttype": "text/plain"}
        for members, message in (
            ({**text, "data": 1}, "data: is not a string, and datacontenttype is not JSON"),
            (
                {**text, "datacontenttype": "text/plain;charset=latin-1", "data": "é"},
                "data: is not in UTF-8 by its datacontenttype; use data_base64",
            ),
            ({**text, "data_base64": "/w"}, "data_base64: is not standard Base64 with padding"),
            ({**text, "data_base64": 1}, "data_base64: is not standard Base64 with padding"),
            ({**text, "data": "a", "data_base64": ""}, "data_base64: there is data too"),
        ):
            error = self.assertRaises(ParameterInvalid, readStructured, members)
            self.assertEqual(error.message, message)

    def test_wrongRequestIsRefused(self) -> None:
        for headers, contentType, body, message in (
            ((), CLOUD_EVENT_TYPE, b"[]", "the body is not a JSON object"),
            ((), CLOUD_EVENT_TYPE, b"", "the body is not a JSON object"),
            ((), CLOUD_EVENT_TYPE, b"[" * 9999, "the body is not a JSON object"),
            ((), CLOUD_EVENT_TYPE, b'{"a":1e999}', "the body is not valid JSON"),
            ((), CLOUD_EVENT_TYPE, b'{"a":"\xff"}', "the body is not valid JSON"),
            ((), CLOUD_EVENT_TYPE + ";charset=latin-1", b"{}", "Content-Type: JSON is in UTF-8"),
            (
                (),
                "application/cloudevents-batch+json",
                b"[]",
                f"Content-Type: of CloudEvents only {CLOUD_EVENT_TYPE} is read",
            ),
            ((("ce-id", b"%FF"),), "", b"", "id: is not UTF-8"),
            ((("ce-id", b"1"), ("ce-id", b"1")), "", b"", "id: there are several"),
            (
                (("ce-datacontenttype", b"a/b"),),
                "",
                b"",
                "datacontenttype: in binary mode it is the header Content-Type",
            ),
            ((), "text/plain", b"a", "specversion: is required"),
        ):
            error = self.assertRaises(
                ParameterInvalid, readCloudEvent, headers, contentType.encode(), body
            )
            self.assertEqual(error.message, message)


class WritingTests(SynchronousTestCase):
    def test_otherEventsHaveAttributesOfTheirPlace(self) -> None:
        self.assertEqual(
            written(b"\xff", {"svc-tag": "\x7fé"}),
            {
                "specversion": "1.0",
                "id": "0cc175b9-1-2",
                "source": "/b/1/a%2Fb",
                "type": "svc.event",
                "time": "2023-11-14T22:13:20.042Z",
                "datacontenttype": "application/octet-stream",
                "svcextensions": '{"svc-tag":"\\u007f\\u00e9"}',
                "data_base64": "/w==",
            },
        )

    def test_extensionsBesideTheAttributesAreKept(self) -> None:
        event = readStructured(REQUIRED)
        sent = written(b"", {CLOUD_EVENT_EXTENSION: event.attributes, "svc-tag": "t"})
        self.assertEqual(sent, {**REQUIRED, **OURS, "svcextensions": '{"svc-tag":"t"}'})

    def test_invalidAttributesOfOtherCarriersDoNotCount(self) -> None:
        for text in ("{", "[]", "{}", '{"id":1}', json.dumps({**REQUIRED, "svceventid": "x"})):
            sent = written(b"", {CLOUD_EVENT_EXTENSION: text})
            self.assertEqual(sent["id"], "0cc175b9-1-2")
            self.assertEqual(json.loads(sent["svcextensions"]), {CLOUD_EVENT_EXTENSION: text})


_texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1).filter(
    lambda text: not any(ord(c) & 0xFFFE == 0xFFFE or 0xFDD0 <= ord(c) < 0xFDF0 for c in text)
)
_names = st.from_regex(r"[a-z0-9]{1,20}", fullmatch=True).filter(
    lambda name: (
        name not in {"data", "time", "dataschema", "datacontenttype", "subject"}
        and name not in REQUIRED
        and not name.startswith("svc")
    )
)
_attributes = st.fixed_dictionaries(
    {
        "specversion": st.just("1.0"),
        "id": _texts,
        "source": _texts.map(quote),
        "type": _texts,
    },
    optional={
        "subject": _texts,
        "dataschema": _texts.map(lambda text: f"urn:{quote(text)}"),
        "time": st.datetimes().map(lambda time: f"{time.isoformat()}Z"),
    },
)
_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner),
    max_leaves=8,
)


class RoundTripTests(SynchronousTestCase):
    """
    What goes in as a CloudEvent comes out equal.
    """

    @given(
        _attributes,
        st.dictionaries(_names, _texts | st.booleans() | st.integers(-(2**31), 2**31 - 1)),
        _json,
        st.sampled_from([None, "application/json", "application/x+json;charset=utf-8"]),
    )
    @settings(max_examples=examples(200), deadline=None)
    def test_structuredJsonComesOutEqual(
        self, attributes: dict[str, Any], more: dict[str, Any], data: Any, contentType: str | None
    ) -> None:
        members = {**more, **attributes, "data": data}
        if contentType is not None:
            members["datacontenttype"] = contentType
        self.assertEqual(sentOn(readStructured(members)), {**members, **OURS})

    @given(
        _attributes,
        st.dictionaries(_names, _texts),
        st.binary(),
        st.sampled_from(["image/png", "text/plain", 'text/plain; charset="latin-1"']),
    )
    @settings(max_examples=examples(200), deadline=None)
    def test_binaryComesOutEqual(
        self, attributes: dict[str, str], more: dict[str, str], body: bytes, contentType: str
    ) -> None:
        members = {**more, **attributes}
        headers = {
            name: quote(value, safe="!#$&'()*+,/:;=?@[]^`{|}~") for name, value in members.items()
        }
        sent = sentOn(readBinary(headers, body, contentType))
        self.assertEqual(dataOf(sent), body)
        for name in ("data", "data_base64"):
            sent.pop(name, None)
        self.assertEqual(sent, {**members, **OURS, "datacontenttype": contentType})
