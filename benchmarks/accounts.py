"""
What accounts cost a publish: C{python -m benchmarks.accounts [ROUNDS]}.

Daemons without accounts and one with an account that may publish are loaded in turns, in the same
run: by REST without credentials, with a password and with a token, and by MQTT without credentials
and with a token. What is compared is the processor time of an event, and the medians of the rounds'
ratios are shown. A second daemon without accounts tells how far equal ones differ.
"""

from __future__ import annotations

import sys
import tempfile
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import median

from svcbroker.access import hashPassword
from svcbroker.commands.bench import Broken, Shape, drive

from .children import freePorts, household
from .loader import connected, driveOn
from .servers import Server, startDaemon
from .wires import mqtt

ROUNDS = 60
CONNECTIONS = 32
SECONDS = 0.5
BODY = b"topic=bench&content=" + b"x" * 300
PASSWORD, TOKEN = b"a password", b"svct_a-token"

_FORM = b"application/x-www-form-urlencoded"

CREDENTIALS: Mapping[str, bytes] = {
    "none": b"",
    "none, too": b"",
    "password": b"Authorization: Basic " + b64encode(b"bench:" + PASSWORD) + b"\r\n",
    "token": b"Authorization: Bearer " + TOKEN + b"\r\n",
}
"""Publishes by REST."""

MQTT_LOGINS: Mapping[str, Sequence[str]] = {
    "MQTT, none": (),
    "MQTT, none, too": (),
    "MQTT, token": ("bench", TOKEN.decode("ascii")),
}
"""Publishes by MQTT with QoS 1."""


def accountsFile() -> str:
    """An account that may publish, as a file of accounts has it."""
    token = sha256(TOKEN).hexdigest()
    return (
        f'[accounts.bench]\npassword = "{hashPassword(PASSWORD)}"\nroles = ["publisher"]\n'
        f'tokens = [{{ label = "x", sha256 = "{token}" }}]\n'
    )


def request(call: str, body: bytes, credentials: bytes) -> bytes:
    """A call of REST by POST."""
    return (
        f"POST /svcbroker/rest/{call} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()
        + credentials
        + b"Content-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (_FORM, len(body), body)
    )


def countOne(body: bytes) -> int:
    """The events that an answer of REST acknowledges: the check of a load."""
    if b"SUCCESS" not in body and body != b"true":
        raise Broken(f"a call has failed: {body!r}")
    return 1


def measure(server: Server, credentials: bytes) -> float:
    """Microseconds of processor time that the daemon uses for an event."""
    before = server.cpu()
    shape = Shape.same(request("publish", BODY, credentials), countOne)
    measured = drive(server.ports[0], shape, CONNECTIONS, SECONDS)
    return 1e6 * (server.cpu() - before) / measured.events


def measureMqtt(server: Server, login: Sequence[str]) -> float:
    """The same by MQTT, over four connections with 64 publishes under way on each."""
    load = mqtt.publishes("bench", 64, login)
    with connected(server.ports[1], load, 4) as sockets:
        before = server.cpu()
        measured = driveOn(sockets, load, SECONDS)
        return 1e6 * (server.cpu() - before) / measured.events


def startServer(directory: Path, *options: str) -> Server:
    """A daemon that serves HTTP and MQTT."""
    [port] = freePorts(1)
    server = startDaemon(directory, {0}, options=["--mqtt", str(port), *options])
    server.ports = [*server.ports, port]
    return server


def main() -> None:
    """Measure, and print the figures."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with household(), tempfile.TemporaryDirectory() as name:
        file = Path(name) / "accounts.toml"
        file.write_text(accountsFile())
        first, second = (startServer(Path(name) / each) for each in ("first", "second"))
        guarded = startServer(Path(name) / "guarded", "--accounts", str(file))
        servers = {"none": first, "none, too": second, "password": guarded, "token": guarded}
        found: dict[str, list[float]] = {each: [] for each in (*CREDENTIALS, *MQTT_LOGINS)}
        for each, server in servers.items():
            opening = Shape.same(request("open", b"topic=bench", CREDENTIALS[each]), countOne)
            drive(server.ports[0], opening, 1, SECONDS, requests=1)
            measure(server, CREDENTIALS[each])
        for number in range(rounds):
            for each in sorted(servers, reverse=number % 2 == 1):
                found[each].append(measure(servers[each], CREDENTIALS[each]))
            for each in sorted(MQTT_LOGINS, reverse=number % 2 == 1):
                server = servers[each.removeprefix("MQTT, ")]
                found[each].append(measureMqtt(server, MQTT_LOGINS[each]))
        for each, times in found.items():
            base = found["MQTT, none" if each in MQTT_LOGINS else "none"]
            ratio = median(one / other for one, other in zip(times, base, strict=True))
            print(f"{each:17}{median(times):7.1f} µs an event, {ratio:.3f} of none")
        for server in (first, second, guarded):
            server.stop()


if __name__ == "__main__":
    main()
