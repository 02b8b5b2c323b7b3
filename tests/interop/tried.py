"""
The clients of others that the tests here use, and the page of docs that lists them.

Run from the root of the source, as C{.ci/run} does, it writes the table of the page::

    python -m tests.interop.tried

A version that is not installed stays as it was.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from attrs import frozen
from twisted.trial.unittest import SkipTest

from tests.needed import neededProgram
from tests.waiting import TIMEOUT

from .node import nodeModules

HERE: Final = Path(__file__).parent
TABLE: Final = HERE.parents[1] / "docs" / "clients-tried.csv"
HEAD: Final = ("Client", "Version", "Tried", "Tests")


@frozen
class Client:
    """
    A client of others.

    @ivar name: as people know it.
    @ivar findVersion: finds its version here; raises C{SkipTest} where it is not installed.
    @ivar tests: the test cases that use it: their modules in this package, and their names.
    @ivar names: only the tests whose names have this.
    """

    name: str
    findVersion: Callable[[], str]
    tests: tuple[str, ...]
    names: str = ""

    def tried(self) -> str:
        """What the tests say of it by their names."""
        return "; ".join(map(_words, self._methods()))

    def _methods(self) -> Iterator[str]:
        for each in self.tests:
            module, _, case = each.partition(".")
            found = vars(getattr(import_module(f"tests.interop.{module}"), case))
            named = [name for name in found if name.startswith("test_")]
            if not named:
                raise AssertionError(f"{each} has no tests")
            yield from (name for name in named if self.names in name)


def _words(name: str) -> str:
    """The words of a test's name."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name.removeprefix("test_"))
    text = " ".join(words).lower()
    for each in ("HTTP", "JavaScript", "MQTT", "PyPI", "Python", "STOMP", "TCP", "WebSocket"):
        text = text.replace(" ".join(re.findall("[A-Z]+[a-z]*", each)).lower(), each)
    return text


def _pypi(name: str) -> Callable[[], str]:
    def find() -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            raise SkipTest(f"{name} is not installed (extra: interop)") from None

    return find


def _npm(name: str) -> Callable[[], str]:
    def find() -> str:
        path = Path(nodeModules(name), name, "package.json")
        found: str = json.loads(path.read_text())["version"]
        return found

    return find


def _program(name: str, option: str = "--version") -> Callable[[], str]:
    def find() -> str:
        command = [neededProgram(name), option]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
        found = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
        if found is None:
            raise AssertionError(f"{command} tells no version: {done.stdout}{done.stderr}")
        return found[0]

    return find


def _maven(folder: str, artifact: str) -> Callable[[], str]:
    def find() -> str:
        text = (HERE / folder / "pom.xml").read_text()
        found = re.search(rf"<artifactId>{artifact}</artifactId>\s*<version>([^<]+)<", text)
        if found is None:
            raise AssertionError(f"{folder}/pom.xml does not have {artifact}")
        return found[1]

    return find


def _required(path: str, pattern: str) -> Callable[[], str]:
    def find() -> str:
        found = re.search(pattern, (HERE / path).read_text())
        if found is None:
            raise AssertionError(f"{path} does not have {pattern}")
        return found[1]

    return find


CLIENTS: Final = (
    Client("paho-mqtt (Python)", _pypi("paho-mqtt"), ("test_mqtt_clients.PahoTests",)),
    Client(
        "mosquitto_pub, mosquitto_sub",
        _program("mosquitto_pub"),
        ("test_mqtt_clients.MosquittoTests",),
    ),
    Client("MQTT.js on Node", _npm("mqtt"), ("test_mqtt_clients.MqttJsTests",)),
    Client(
        "HiveMQ's client for Java",
        _maven("hivemq", "hivemq-mqtt-client"),
        ("test_hivemq.HiveMqTests",),
    ),
    Client(
        "Paho's client for Go",
        _required("paho-go/go.mod", r"/paho\.mqtt\.golang v(\S+)"),
        ("test_paho_go.PahoGoTests",),
    ),
    Client(
        "rumqttc for Rust",
        _required("rumqttc/Cargo.toml", r'rumqttc = {.*"=(\S+)"'),
        ("test_rumqttc.RumqttcTests",),
    ),
    Client("stomp.py", _pypi("stomp.py"), ("test_stomp.StompPyTests",)),
    Client("@stomp/stompjs on Node", _npm("@stomp/stompjs"), ("test_stomp.StompJsTests",)),
    Client(
        "Spring's WebSocketStompClient",
        _maven("spring", "spring-messaging"),
        ("test_spring_stomp.SpringTests",),
    ),
    Client(
        "WeEvent's client for Java",
        _maven("weevent", "weevent-client"),
        ("test_weevent.WeEventTests",),
    ),
    Client("httpx-sse", _pypi("httpx-sse"), ("test_sse.HttpxSseTests",)),
    Client(
        "Standard Webhooks for Python",
        _pypi("standardwebhooks"),
        ("test_webhooks.StandardWebhookTests",),
        "PyPI",
    ),
    Client(
        "Standard Webhooks for JavaScript",
        _npm("standardwebhooks"),
        ("test_webhooks.StandardWebhookTests",),
        "Npm",
    ),
    Client(
        "CloudEvents' SDK for Python",
        _pypi("cloudevents"),
        (
            "test_cloudevents.CloudEventsTests",
            "test_cloudevents.WebhookTests",
            "test_cloudevents.MqttTests",
        ),
        "python",
    ),
    Client(
        "CloudEvents' SDK for JavaScript",
        _npm("cloudevents"),
        ("test_cloudevents.CloudEventsTests",),
        "javaScript",
    ),
    Client(
        "nginx, with httpx, paho-mqtt and stomp.py",
        _program("nginx", "-v"),
        ("test_proxies.NginxTests",),
    ),
    Client("HAProxy, with the same", _program("haproxy", "-v"), ("test_proxies.HAProxyTests",)),
    Client("Prometheus", _program("prometheus"), ("test_prometheus.PrometheusTests",)),
)


def rows() -> list[tuple[str, str, str]]:
    """A line for each client without its version: its name, what is tried, and where."""
    return [
        (each.name, each.tried(), ", ".join(f"``tests.interop.{name}``" for name in each.tests))
        for each in CLIENTS
    ]


def page() -> list[dict[str, str]]:
    """The lines of the page."""
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    """Write the table of the page."""
    known = {row["Client"]: row["Version"] for row in page()} if TABLE.exists() else {}
    lines = []
    for client, (name, tried, tests) in zip(CLIENTS, rows(), strict=True):
        try:
            found = client.findVersion()
        except SkipTest:
            found = known.get(name, "")
        lines.append((name, found, tried, tests))
    with TABLE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([HEAD, *lines])


if __name__ == "__main__":
    main()
