"""
What registering a statement of SCITT costs: C{python -m benchmarks.statements [ROUNDS]}.

Two daemons, of which one is a transparency service, are loaded in turns, in the same run: by
publishes of 300 bytes on both, and by statements with a payload of 300 bytes. What is compared is
the processor time of an event, and the medians of the rounds' ratios are shown.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from statistics import median

from svcbroker.commands.bench import Broken, Shape, drive, splitAnswer
from svcbroker.proofs.scitt import Claims, ServiceKey, encodeKeys

from .accounts import BODY, countOne, request
from .children import household
from .servers import Server, startDaemon

ROUNDS = 20
CONNECTIONS = 32
SECONDS = 0.5
ISSUER = "https://acme.example"
POLICY = f'[[issuers]]\nissuer = "{ISSUER}"\nkeys = "issuer-keys"\n'

_KEY = ServiceKey.derive(b"issuer".ljust(32), "EdDSA")
_NUMBERS = count()


def statements(connection: int) -> Iterator[bytes]:
    """Requests with statements, each of which is another one."""
    while True:
        claims = Claims(issuer=ISSUER, subject=f"urn:{next(_NUMBERS)}")
        body = _KEY.statement(claims, "text/plain", b"x" * 300)
        head = "POST /entries HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/cose\r\n"
        yield head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def splitCreated(received: bytes) -> tuple[bytes, bytes] | None:
    """The same as L{splitAnswer} for an answer with status 201."""
    status = b"HTTP/1.1 201 Created"
    if received.startswith(status):
        received = b"HTTP/1.1 200 OK" + received.removeprefix(status)
    return splitAnswer(received)


def countReceipt(body: bytes) -> int:
    """The receipt that an answer is: the check of a load."""
    if not body.startswith(b"\xd2\x84"):
        raise Broken(f"a statement is not registered: {body!r}")
    return 1


PUBLISHES = Shape.same(request("publish", BODY, b""), countOne)
STATEMENTS = Shape(requests=statements, check=countReceipt, split=splitCreated)


def measure(server: Server, shape: Shape) -> float:
    """Microseconds of processor time that a daemon uses for an event."""
    before = server.cpu()
    measured = drive(server.ports[0], shape, CONNECTIONS, SECONDS)
    return 1e6 * (server.cpu() - before) / measured.events


def main() -> None:
    """Measure, and print the figures."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with household(), tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "issuer-keys").write_bytes(encodeKeys([_KEY.public]))
        (root / "policy.toml").write_text(POLICY)
        options = ["--scitt", "statements", "--scitt-policy", str(root / "policy.toml")]
        plain, service = startDaemon(root / "a", {0}), startDaemon(root / "b", {0}, options=options)
        loads: Mapping[str, Callable[[], float]] = {
            "publish": lambda: measure(plain, PUBLISHES),
            "publish beside a service": lambda: measure(service, PUBLISHES),
            "statement": lambda: measure(service, STATEMENTS),
        }
        for server in (plain, service):
            opening = Shape.same(request("open", b"topic=bench", b""), countOne)
            drive(server.ports[0], opening, 1, SECONDS, requests=1)
        found = {each: [load()] for each, load in loads.items()}
        for number in range(rounds):
            for each in sorted(loads, reverse=number % 2 == 1):
                found[each].append(loads[each]())
        for each, times in found.items():
            pairs = [*zip(times, found["publish"], strict=True)][1:]
            ratio = median(one / other for one, other in pairs)
            print(f"{each:25}{median(times[1:]):8.1f} µs an event, {ratio:.2f} of a publish")
        for server in (plain, service):
            server.stop()


if __name__ == "__main__":
    main()
