"""
What confidential events cost: C{python -m benchmarks.confidential}.

Closing, opening and padding of contents of 100 bytes to a megabyte, for 1 to 20 recipients, in
processor time; and against a daemon on this machine, publishing in batches and following, with
contents closed and open in turns. All closing and opening is the client's: the daemon takes the
same time for an event that is as large.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

from svcbroker.client import Client, Publication
from svcbroker.client._confidential import closed, newIdentity
from svcbroker.proofs import AgeIdentity, openContent, padded, unpadded

from .children import household
from .servers import Server, startDaemon

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
RECIPIENTS = (1, 5, 20)
SECONDS = 0.5
ROUNDS = 5
BATCH, EVENTS = 256, 4096
CLOSED = {"svc-encrypted": "age", "svc-padding": "spaces"}


def cost(call: Callable[[], object]) -> float:
    """The processor time of a call, in milliseconds: the median of several."""
    times: list[float] = []
    begin = process_time()
    while process_time() - begin < SECONDS or len(times) < 3:
        start = process_time()
        call()
        times.append(1000 * (process_time() - start))
    return median(times)


def measureContents() -> None:
    """Print the rows of sizes and recipients."""
    names = ["content", "recipients", "in the log", "pad", "close", "open", "not opened", "unpad"]
    print(f"| {' | '.join(names)} |\n{'|---' * len(names)}|")
    pairs = [newIdentity() for _ in range(max(RECIPIENTS))]
    stranger = AgeIdentity.parse(newIdentity()[0])
    for size in SIZES:
        content = os.urandom(size)
        for count in RECIPIENTS:
            recipients = [recipient for _, recipient in pairs[:count]]
            last = AgeIdentity.parse(pairs[count - 1][0])
            figures = " | ".join(measureContent(content, recipients, last, stranger))
            print(f"| {size:,} | {count} | {figures} |", flush=True)


def measureContent(
    content: bytes, recipients: Sequence[str], identity: AgeIdentity, stranger: AgeIdentity
) -> list[str]:
    """
    The columns of one content.

    @param identity: that of the last recipient, which takes longest to find.
    @param stranger: one that does not open it.
    """
    plain, data = padded(content), closed(content, recipients)
    times = [
        cost(lambda: padded(content)),
        cost(lambda: closed(content, recipients)),
        cost(lambda: openContent(data, CLOSED, [identity])),
        cost(lambda: isOpened(data, stranger)),
        cost(lambda: unpadded(plain, CLOSED)),
    ]
    return [f"{len(data):,}", *(f"{each:.3f} ms" for each in times)]


def isOpened(data: bytes, identity: AgeIdentity) -> bool:
    """Whether an identity opens a content."""
    try:
        openContent(data, CLOSED, [identity])
    except ValueError:
        return False
    return True


def publish(server: Server, topic: str, recipients: Sequence[str]) -> tuple[float, float]:
    """Publish batches; events a second, and the client's processor time of an event in us."""
    url = f"http://127.0.0.1:{server.ports[0]}/svcbroker"
    with Client(url, recipients=recipients) as client:
        client.open(topic)
        begin, used = perf_counter(), process_time()
        for _ in range(EVENTS // BATCH):
            batch = [Publication(topic, os.urandom(300)) for _ in range(BATCH)]
            assert not any(isinstance(each, Exception) for each in client.publishMany(batch))
        used = process_time() - used
        return EVENTS / (perf_counter() - begin), 1e6 * used / EVENTS


def read(server: Server, topic: str, identity: AgeIdentity | None) -> tuple[float, float]:
    """Follow from the beginning; events a second, and the client's processor time of an event."""
    url = f"http://127.0.0.1:{server.ports[0]}/svcbroker"
    with Client(url, identities=[] if identity is None else [identity]) as client:
        begin, used = perf_counter(), process_time()
        for count, _ in enumerate(client.follow(topic, after="OFFSET_FIRST"), 1):
            if count == EVENTS:
                break
        used = process_time() - used
        return EVENTS / (perf_counter() - begin), 1e6 * used / EVENTS


def measureDaemon(directory: Path) -> None:
    """Print the rows of publishing and following, which are done in turns."""
    secret, recipient = newIdentity()
    identity = AgeIdentity.parse(secret)
    server = startDaemon(directory, os.sched_getaffinity(0))
    rows: dict[str, list[tuple[float, float]]] = {}
    try:
        for number in range(ROUNDS):
            for name, recipients in (("open", []), ("closed", [recipient])):
                made = publish(server, f"{name}/{number}", recipients)
                rows.setdefault(f"publish {name}, {BATCH} to a batch", []).append(made)
            for name, topic, own in (
                ("follow open", "open", None),
                ("follow closed, without an identity", "closed", None),
                ("follow closed, with an identity", "closed", identity),
            ):
                rows.setdefault(name, []).append(read(server, f"{topic}/{number}", own))
    finally:
        server.stop()
    print("\n| 300 bytes, one recipient | events/s | client's processor time of an event |")
    print("|---|---|---|")
    for name, found in rows.items():
        rate, used = (median(each) for each in zip(*found, strict=True))
        print(f"| {name} | {rate:,.0f} | {used:.0f} us |", flush=True)


def main() -> None:
    """Measure all of it."""
    measureContents()
    with household(), tempfile.TemporaryDirectory() as directory:
        measureDaemon(Path(directory) / "daemon")


if __name__ == "__main__":
    main()
