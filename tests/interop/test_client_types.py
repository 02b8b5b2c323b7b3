"""
A program that uses the clients, checked by mypy.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import svcbroker
from tests.needed import needPackage

ROOT = Path(svcbroker.__file__).parents[1]

CONSUMER = """
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import assert_type

from twisted.internet.defer import Deferred

from svcbroker.client import (
    AsyncClient, AuthorKey, BrokerError, Client, Event, Publication, Published, TopicState,
)
from svcbroker.client.twisted import TwistedClient


def block(client: Client, key: AuthorKey) -> int:
    assert_type(client.publish("a", b"x", {"svc-tag": "t"}, expectedSequence=3), Published)
    assert_type(client.publish("a", "x", author=key), Published)
    assert_type(client.publishMany([Publication("a", "x")]), list[Published | BrokerError])
    assert_type(client.follow("#", after=7), Generator[Event, None, None])
    client.follow("#", after=datetime.now(UTC), tag="t", timeout=5)
    for event in client.events("a/#", limit=5):
        assert_type(event.content, bytes)
    try:
        assert_type(client.open("a"), bool)
    except BrokerError as error:
        return error.code
    return client.state("a").sequenceNumber


async def wait(client: AsyncClient) -> str:
    assert_type(client.follow("#"), AsyncGenerator[Event, None])
    async with aclosing(client.follow("#", after="OFFSET_FIRST")) as events:
        async for event in events:
            return event.eventId
    assert_type(await client.genesis(), bytes)
    assert_type(await client.state("a"), TopicState)
    return (await client.publish("a", "x")).eventId


def twist(client: TwistedClient) -> Deferred[Published]:
    assert_type(client.exist("a"), Deferred[bool])
    assert_type(client.proof("1-1-1"), Deferred[bytes])
    events: AsyncIterator[Event] = client.follow("#", after="OFFSET_FIRST")
    return client.publish("a", b"x")


client = Client("http://127.0.0.1:8080/svcbroker", token="t", timeout=5.0, checkpointFile="kept")
block(client, AuthorKey.read("key.pem"))
"""
MISTAKES = """
from svcbroker.client import Client

client = Client("http://127.0.0.1:8080/svcbroker", tokn="t")
client.publish("a", 5)
client.publish("a", b"x", expectedSeq=3)
client.state("a").sequence
"""


class TypingTests(SynchronousTestCase):
    """
    Programs that use the clients, and are checked by mypy.
    """

    def test_strictMypyPassesConsumerAndFindsMistakes(self) -> None:
        """
        Calls have the types that the documentation says; wrong options, arguments and attributes
        are errors.
        """
        needPackage("mypy", "lint")
        directory = Path(self.mktemp())
        directory.mkdir(parents=True)
        for name, program in (("consumer.py", CONSUMER), ("mistakes.py", MISTAKES)):
            (directory / name).write_text(program, "utf-8")
        # The rest of the package is checked elsewhere. One check of both reads Twisted only once.
        options = ("--strict", "--follow-imports=silent", "--no-color-output")
        done = subprocess.run(
            [sys.executable, "-m", "mypy", *options, "consumer.py", "mistakes.py"],
            cwd=directory,
            env={**os.environ, "MYPYPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        *errors, last = done.stdout.splitlines()
        self.assertEqual((done.returncode, done.stderr), (1, ""), done.stdout)
        self.assertEqual(last, "Found 4 errors in 1 file (checked 2 source files)")
        self.assertEqual({each.partition(":")[0] for each in errors}, {"mistakes.py"}, errors)
