"""
The pure parts of the benchmarks: what they count must be right.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.cases import getEvent, postForm, rpc
from benchmarks.load import Broken, splitAnswer

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX: y\r\n\r\n"


class SplitAnswerTests(SynchronousTestCase):
    """
    Answers are taken apart where they end.
    """

    def test_whole(self) -> None:
        """A whole answer gives its body and what follows it."""
        self.assertEqual(splitAnswer(HEAD + b"bodyrest"), (b"body", b"rest"))

    def test_everyPart(self) -> None:
        """As long as anything is missing there is no answer."""
        whole = HEAD + b"body"
        for length in range(len(whole)):
            self.assertIsNone(splitAnswer(whole[:length]))

    def test_otherStatus(self) -> None:
        """Any status but 200 ends the measurement."""
        self.assertRaises(Broken, splitAnswer, HEAD.replace(b"200", b"500") + b"body")

    def test_noLength(self) -> None:
        """An answer of unknown length ends the measurement."""
        self.assertRaises(Broken, splitAnswer, b"HTTP/1.1 200 OK\r\n\r\n")


class CheckTests(SynchronousTestCase):
    """
    Only right answers are counted.
    """

    def test_publish(self) -> None:
        """A publish counts when it has succeeded."""
        check = postForm().check
        self.assertEqual(check(b'{"topic":"t","eventId":"e","status":"SUCCESS"}'), 1)
        self.assertRaises(Broken, check, b'{"topic":"t","eventId":null,"status":"TIMEOUT"}')
        self.assertRaises(Broken, check, b'{"code":100101,"message":"no such topic"}')

    def test_batch(self) -> None:
        """A batch counts when all of it has succeeded."""
        check = rpc(2)(()).check
        good = b'{"result":{"status":"SUCCESS"}}'
        self.assertEqual(check(b"[%b,%b]" % (good, good)), 2)
        self.assertRaises(Broken, check, b"[%b]" % good)
        self.assertRaises(Broken, check, b'[%b,%b,{"error":1}]' % (good, good))

    def test_getEvent(self) -> None:
        """A read counts when it has brought the content."""
        shape = getEvent(["a", "b"])
        self.assertRaises(Broken, shape.check, b'{"content":"eHh4"}')
        asked = [next(shape.requests) for _ in range(3)]
        self.assertEqual([b"eventId=a" in each for each in asked], [True, False, True])
