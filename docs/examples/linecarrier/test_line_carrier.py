"""The contract of a feature, on the carrier for lines; and what it answers."""

from pathlib import Path

from line_carrier import FEATURE

from svcbroker.testing import FeatureFixture, makeFeatureTests


def makeFixture(test):
    greeting = Path(test.mktemp())
    greeting.write_bytes(b"hello\n")
    return FeatureFixture(
        feature=FEATURE,
        settings={"line": "tcp:7000", "line-greeting": str(greeting)},
        damage=greeting.unlink,
        port="line",
        publish=[b"PUB t hello\n"],
    )


class LineTests(makeFeatureTests(makeFixture, hasPort=True)):
    def test_eventsAreSentToThoseWhoSubscribe(self):
        made = self.serve()
        self.open(made)
        protocol, transport = self.connect(made)
        for line in (b"PUB t first", b"SUB t", b"PUB t two words\r", b"FLY"):
            protocol.dataReceived(line + b"\n")
            self.settle()
        greeting, first, subscribed, *answers, unknown = transport.value().splitlines()
        self.assertEqual((greeting, subscribed, unknown[:11]), (b"hello", b"OK", b"ERR 200204 "))
        event = next(each for each in answers if each.startswith(b"EVENT "))
        self.assertTrue(first.startswith(b"OK ") and event.endswith(b" t two words"), answers)
        protocol.connectionLost(None)
        self.end(made)
