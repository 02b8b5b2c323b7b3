"""
The fast path and Klein give the same answers, byte for byte, to everything.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from twisted.internet.interfaces import IReactorTime
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import Access
from svcbroker.carriers.http.logins import HttpSettings
from tests import examples
from tests.access.support import account

from . import twosites
from .accounts import TOKEN, Accounts, basic
from .support import BASE, FORM, requestBytes
from .twosites import Pass, Send, Step, TwoSites

TARGETS = (
    *("/rest/publish?topic=t&content=x", "/rest/publish?topic=t&content=%FF+", "/rest/publish"),
    *("/rest/getEvent?eventId=2cf24dba-1-1", "/rest/exist?topic=t", "/rest/state?topic=t"),
    *("/rest/open?topic=u&groupId=2", "/rest/list", "/jsonrpc", "/jsonrpc?x", "/rest/state?"),
)
ODD_TARGETS = (
    *("/rest/none", "/admin/listGroup", "/rest/%65xist?topic=t", "/rest/exist?topic=a b"),
    *("/rest/exist/", "//rest/exist", "/rest/exist#x", "/rest/exist?\x7f", "/rest/exist?\xb0"),
    *("/rest/exist?\xb1", "/rest/state?topic=t?x", "/rest/state?" + "x" * 9000, "/rest/\x00"),
    *("/rest/publish?" + "y" * 1100, "/rest/publish?" + "y" * 70_000),
)
HOSTS = ("Host: broker", "Host: localhost:8080", "host: b")
ODD_HOSTS = (
    *("", "Host: evil.example", "Host:", "Host: [", "Host: b/", "Host: b\r\nHost: b"),
    *("Host: \xe9", "Host : b", "Host: [::1]:8080", "Host: b\tc", "Host: a@b", "Host: %62"),
)
LINES = (
    "Sec-Fetch-Site: same-origin",
    *("Origin: http://broker", "Accept: */*", "Connection: keep-alive", "Connection: Keep-Alive"),
    *(f"Content-Type: {FORM}", "Content-Type: application/json", "Origin: http://a"),
    *(f"Authorization: {basic('ann')['Authorization']}", f"authorization: bearer {TOKEN}"),
    *(f"Authorization: {basic('ann', 'x')['Authorization']}", "Authorization: Bearer x"),
    *(
        "Origin: http://b",
        "User-Agent: test \xe9",
        "content-type: text/plain",
        "X-A:",
        "X-A: \tb \t",
    ),
)
ODD_LINES = (
    *("Host: b", "Sec-Fetch-Site: cross-site", "Origin: null"),
    *("Sec-Fetch-Site: same-site", "Sec-Fetch-Site: x", "Connection: close", "connection: CLOSE"),
    *("Connection: keep-alive, close", "Connection: x"),
    *("Transfer-Encoding: chunked", "Transfer-Encoding: identity", "transfer-encoding: x, chunked"),
    *("Expect: 100-continue", "Upgrade: h2c", "Connection: Upgrade", " folded", "\tfolded", "none"),
    *("A : b", ": b", "A\x00: b", "A: \x00", "A: b\rc", "A: b\nc", "A: b\n", "\x80: b", "A(: b"),
    *("A: \x01", "A: \x7f", "Content-Length: 0", "Content-Length: 7", "Content-Length: +7"),
    *("Content-Length: 7 7", "Content-Length: 7,7", "Content-Length:", "Content-Length: 0x7"),
    *("Content-Length: 00007", "Content-Length: 7\t", "Content-Length: -1", "Content_Length: 7"),
    *("Content-Length: 999999", "Content-Length: " + "9" * 25, "Content-Length: \xb2"),
    *("Content-Length : 7", "X: " + "y" * 2000, "X: " + "y" * 9000, "X: " + "y" * 66_000),
    *("\r\n".join(f"X-{n}: y" for n in range(120)), "\r\n".join(f"X-{n}: y" for n in range(501))),
)
BODIES = (
    *(b"", b"topic=t&content=x", b"topic=v", b"GET / HTTP/1.1\r\n\r\n", b"\r\n\r\n", b"\xff\x00"),
    b'{"jsonrpc":"2.0","id":1,"method":"publish","params":{"topic":"t","content":"eA=="}}',
    b'{"jsonrpc":"2.0","method":"open","params":["w"]}',
    b'[{"jsonrpc":"2.0","id":"a","method":"state","params":["t"]},{"jsonrpc":"2.0","id":2}]',
)
CHUNKED = (
    *(
        b"0\r\n\r\n",
        b"7\r\ntopic=t\r\n0\r\n\r\n",
        b"7;x=y\r\ntopic=t\r\n0\r\nA: b\r\n\r\n",
        b"z\r\n",
    ),
    *(b"-7\r\ntopic=t\r\n0\r\n\r\n", b"07\r\ntopic=tt\r\n0\r\n\r\n", b"7\ntopic=t\n0\n\n"),
)
ORIGINS = {"none": (), "one": ("http://a",), "all": ("*",)}
"""Origins that are allowed."""


def makeAccess(clock: IReactorTime) -> Access:
    """An account that may read and publish one topic, and anonymous clients that may do more."""
    accounts = Accounts(account("ann", "publish 1 t", "subscribe 1 u"))
    anonymous = account("", "publish * #", "open * #", "subscribe * t")
    return Access([accounts], clock, clock.seconds, anonymous=anonymous)


def mostly(usual: st.SearchStrategy[str], odd: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """One unusual part in ten, so that a request seldom has two."""
    return st.integers(0, 9).flatmap(lambda n: odd if n == 0 else usual)


@st.composite
def requests(draw: DrawFn) -> bytes:
    """A request, plain in most of its parts, as it is sent."""
    sample = st.sampled_from
    method = draw(mostly(sample(["GET", "POST"]), sample(["HEAD", "OPTIONS", "PUT", "get", "G("])))
    target = draw(mostly(sample(TARGETS), sample(ODD_TARGETS)))
    prefix = draw(mostly(st.just(BASE), sample(["", "http://broker" + BASE, "*"])))
    odd = sample(["HTTP/1.0", "HTTP/1.2", "HTTP/2", "http/1.1", "", "HTTP/1.1 ", " HTTP/1.1"])
    version = draw(mostly(st.just("HTTP/1.1"), odd))
    lines = draw(st.lists(mostly(sample(LINES), sample(ODD_LINES)), max_size=5))
    host = draw(mostly(sample(HOSTS), sample(ODD_HOSTS)))
    lines[:0] = [host] if host else []
    body = draw(sample(BODIES)) if method == "POST" or draw(st.integers(0, 9)) == 0 else b""
    if draw(st.integers(0, 19)) == 0:
        body, length = draw(sample(CHUNKED)), "Transfer-Encoding: chunked"
    else:
        length = f"Content-Length: {len(body)}"
    if body or draw(st.booleans()):
        lines.insert(draw(st.integers(0, len(lines))), length)
    end = draw(mostly(st.just("\r\n"), sample(["\n", "\r", "\r\r\n", "\n\r\n", " \r\n"])))
    start = draw(mostly(st.just(""), sample(["\r\n", "\r\n\r\n", "\n", " ", "\x00"])))
    head = "".join(f"{line}\r\n" for line in (f"{method} {prefix}{target} {version}", *lines))
    return (start + head + end).encode("latin-1") + body


@st.composite
def mutated(draw: DrawFn, data: bytes) -> bytes:
    """A few bytes changed."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        some = draw(st.sampled_from([b"", b"\r", b"\n", b" ", b"\x00", b":", b"7", b"\r\n", b"\t"]))
        data = data[:at] + some + data[at + draw(st.integers(0, 2)) :]
    return data


@st.composite
def pieces(draw: DrawFn, data: bytes) -> list[bytes]:
    """The bytes that are sent, cut at some places."""
    places = st.lists(st.integers(0, len(data)), max_size=4)
    cuts = sorted({0, len(data), *draw(places)})
    return [data[start:end] for start, end in pairwise(cuts)]


@st.composite
def stories(draw: DrawFn) -> list[Step]:
    """Pipelined requests, with other events between their pieces."""
    data = b"".join(draw(st.lists(requests(), min_size=1, max_size=5)))
    if draw(st.integers(0, 3)) == 0:
        data = draw(mutated(data))
    events: st.SearchStrategy[Step] = st.sampled_from(
        [
            *(
                twosites.hold,
                twosites.hold,
                twosites.release,
                twosites.decide,
                twosites.pause,
                twosites.resume,
            ),
            *(Pass(1), Pass(2), Pass(15), Pass(59), Pass(60), twosites.drain, twosites.leave),
        ]
    )
    steps: list[Step] = []
    isEventful = draw(st.booleans())
    for piece in draw(pieces(data)):
        if isEventful:
            steps += draw(st.lists(events, max_size=2))
        steps.append(Send(piece))
    return [*steps, twosites.release, twosites.resume, Pass(60), Pass(15), twosites.leave]


class DifferenceTests(SynchronousTestCase):
    """
    The same stories on a site with the fast path and one without.
    """

    def setUp(self) -> None:
        self.sites = {
            name: TwoSites(HttpSettings(corsOrigins=frozenset(origins), hostNames={"broker", "b"}))
            for name, origins in ORIGINS.items()
        }
        self.sites["accounts"] = TwoSites(HttpSettings(hostNames={"broker", "b"}), makeAccess)

    def test_eachUnusualPartOnce(self) -> None:
        """Whole and in pieces, with a request behind it."""
        body = b"topic=v\r\n" + requestBytes("GET", f"{BASE}/rest/open?topic=smuggled")
        behind = requestBytes("GET", f"{BASE}/rest/exist?topic=t")
        heads = [f"GET {BASE}{target} HTTP/1.1\r\nHost: b" for target in ODD_TARGETS]
        for line in ODD_LINES:
            start = f"POST {BASE}/rest/open HTTP/1.1\r\nContent-Type: {FORM}\r\n"
            length = f"Content-Length: {len(body)}"
            heads += [f"{start}Host: b\r\n{line}", f"{start}{length}\r\n{line}\r\nHost: b"]
        for host in ODD_HOSTS:
            heads.append(f"GET {BASE}/rest/exist?topic=t HTTP/1.1\r\n{host}".rstrip("\r\n"))
        for head in heads:
            request = head.encode("latin-1") + b"\r\n\r\n" + body
            # In the middle of a line, after the head, in the body.
            for cut in (0, 30, len(request) - len(body), len(request) - 5):
                steps: list[Step] = [Send(request[:cut]), Send(request[cut:] + behind)]
                self.sites["one"].play([*steps, Pass(60), twosites.leave], self.assertEqual)

    def test_orderIsKeptWhileTheClientDoesNotRead(self) -> None:
        """Requests that arrive although reading is paused, behind an unanswered call."""
        publish = requestBytes("GET", f"{BASE}/rest/publish?topic=t&content=x")
        for path in ("/healthz", f"{BASE}/rest/exist?topic=t"):
            behind = requestBytes("GET", path)
            for slow in (publish, publish.replace(b"Host", b"Expect: x\r\nHost")):
                answers = self.sites["none"].play(
                    [
                        *(twosites.hold, Send(slow + behind[:1]), twosites.pause, Send(behind[1:])),
                        *(twosites.release, twosites.resume, twosites.leave),
                    ],
                    self.assertEqual,
                )
                self.assertEqual(answers.count(b"HTTP/1.1 200 OK\r\n"), 2, answers)

    def test_plainRequestsAreAnswered(self) -> None:
        story: list[Step] = [
            Send(requestBytes("POST", BASE + target, b"topic=t&content=x", {"Content-Type": FORM}))
            for target in TARGETS
        ]
        answers = self.sites["none"].play([*story, twosites.leave], self.assertEqual)
        self.assertEqual(answers.count(b"HTTP/1.1 200 OK\r\n"), len(TARGETS))

    @given(stories(), st.sampled_from(sorted(ORIGINS)))
    @settings(
        max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    def test_anyStoryIsAnsweredAlike(self, steps: list[Step], origins: str) -> None:
        self.sites[origins].play(steps, self.assertEqual)
        self.flushLoggedErrors()

    @given(stories())
    @settings(
        max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    def test_accountsAreAnsweredAlike(self, steps: list[Step]) -> None:
        """The same with accounts: one may do less than anonymous clients."""
        self.sites["accounts"].play(steps, self.assertEqual)
        self.flushLoggedErrors()
