"""
Everything that can be changed in a document, one change at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

OTHERS: Sequence[Any] = (None, True, False, 0, 1, 1.5, "", "0", [], [None], {}, {"a": 1})
ITEMS: Sequence[Any] = (None, 0, "", "0" * 64, [], {})
MEMBERS: Sequence[Any] = (None, "", "x", [], {})
EXTREMES = (-1, 0, 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**400)


def mutations(document: Any, path: str = "$") -> Iterator[tuple[str, Any]]:
    """
    Each change of a document: where and what, and the document with it.
    """
    for other in OTHERS:
        yield f"{path}: {other!r}", other
    match document:
        case str():
            yield from _texts(document, path)
        case bool():
            pass
        case int():
            for number in (document - 1, document + 1, -document, *EXTREMES):
                yield f"{path}: {str(number)[:30]}", number
            yield f"{path}: as a text", str(document)
            yield f"{path}: as a fraction", document + 0.5
        case list():
            yield from _lists(document, path)
        case dict():
            yield from _objects(document, path)


def _texts(text: str, path: str) -> Iterator[tuple[str, Any]]:
    for at in sorted({0, 1, len(text) // 2, len(text) - 2, len(text) - 1}):
        if 0 <= at < len(text):
            yield f"{path}: flipped at {at}", flipped(text, at)
            yield f"{path}: without {at}", text[:at] + text[at + 1 :]
            yield f"{path}: twice {at}", text[:at] + text[at] + text[at:]
    for other in (text.upper(), text.swapcase(), text[::-1], f"{text} ", f" {text}", f"{text}\n"):
        yield f"{path}: {other[:20]!r}...", other
    for other in ("0x" + text, text + "0", text + text, "\ud800", text + "\0", "é", "1" * 5000):
        yield f"{path}: {other[:20]!r}...", other


def flipped(text: str, at: int) -> str:
    """A text with another character of its kind at a place."""
    old = text[at]
    new = {"f": "e", "9": "8"}.get(old, chr(ord(old) + 1))
    return text[:at] + new + text[at + 1 :]


def _lists(items: Sequence[Any], path: str) -> Iterator[tuple[str, Any]]:
    for at, item in enumerate(items):
        rest = [*items[:at], *items[at + 1 :]]
        yield f"{path}[{at}]: dropped", rest
        yield f"{path}[{at}]: twice", [*items[: at + 1], item, *items[at + 1 :]]
        yield f"{path}[{at}]: at the end, too", [*items, item]
        yield f"{path}[{at}]: moved to the start", [item, *rest]
        if at:
            swapped = [*items[: at - 1], item, items[at - 1], *items[at + 1 :]]
            yield f"{path}[{at}]: swapped", swapped
        for what, changed in mutations(item, f"{path}[{at}]"):
            yield what, [*items[:at], changed, *items[at + 1 :]]
    yield f"{path}: cut", items[: len(items) // 2]
    yield f"{path}: backwards", list(reversed(items))
    for other in ITEMS:
        yield f"{path}: with {other!r}", [*items, other]


def _objects(members: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, value in members.items():
        rest = {key: other for key, other in members.items() if key != name}
        yield f"{path}.{name}: dropped", rest
        yield f"{path}.{name}: renamed", {**rest, name + "x": value}
        yield f"{path}.{name}: renamed to upper case", {**rest, name.upper() + "_": value}
        for what, changed in mutations(value, f"{path}.{name}"):
            yield what, {**members, name: changed}
    for name in ("", "x", "content", "contentBase64", "checkpoint", "changes", "kind", "svc-x"):
        if name not in members:
            for other in MEMBERS:
                yield f"{path}.{name}: {other!r}", {**members, name: other}


def randomlyChanged(data: bytes, seed: Random) -> bytes:
    """
    A proof with one random change that gives it another meaning: a byte of its text, a character of
    a value, a bit of the bytes that a value stands for, or two values for each other.
    """
    document = json.loads(data)
    while True:
        if seed.random() < 0.25:
            at = seed.randrange(len(data))
            changed = data[:at] + bytes([seed.randrange(256)]) + data[at + 1 :]
        else:
            copy = json.loads(data)
            places = list(_places(copy))
            # What is signed, and what signs it, is changed half of the time.
            ofEvent = list(_places(copy["event"]))
            container, key = seed.choice(seed.choice([places, ofEvent]))
            container[key] = _otherValue(container[key], places, seed)
            changed = json.dumps(copy).encode("ascii")
        try:
            isSame = json.loads(changed) == document
        except ValueError:
            isSame = False
        if not isSame:
            return changed


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """The places of the plain values of a document: containers and keys."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(inner, dict | list):
            yield from _places(inner)
        else:
            yield value, key


def _otherValue(value: Any, places: Sequence[tuple[Any, Any]], seed: Random) -> Any:
    if isinstance(value, bool) or value is None:
        return 1
    if isinstance(value, int):
        return seed.choice([value + 1, value - 1, value ^ 1 << seed.randrange(64), str(value)])
    if seed.random() < 0.2:
        container, key = seed.choice(places)
        return container[key]
    try:
        digits = bytearray.fromhex(value)
    except ValueError:
        digits = bytearray()
    if digits and seed.random() < 0.8:
        digits[seed.randrange(len(digits))] ^= 1 << seed.randrange(8)
        return digits.hex()
    at = seed.randrange(len(value) + 1)
    return value[:at] + chr(seed.randrange(32, 127)) + value[at + seed.randrange(2) :]
