"""
The headers C{traceparent} and C{tracestate} of publishes over HTTP.
"""

from __future__ import annotations

import json
from typing import Any

from .support import BASE
from .test_publishing import PublishTestCase

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
STATE = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"
TRACE = {"svc-traceparent": PARENT, "svc-tracestate": STATE}
GET = f"{BASE}/rest/publish?topic=t&content=x"


class TraceTests(PublishTestCase):
    def ask(self, method: str, path: str, body: bytes = b"", **headers: Any) -> Any:
        """Ask with a trace, and with other headers."""
        given = {"traceparent": PARENT, "tracestate": STATE, **headers}
        return self.client.ask(method, path, body, given).json()

    def rpcCalls(self, *params: Any) -> Any:
        """Publish by JSON-RPC: one call, or a batch."""
        calls = [
            {"jsonrpc": "2.0", "id": 1, "method": "publish", "params": each} for each in params
        ]
        body = json.dumps(calls if len(calls) > 1 else calls[0]).encode()
        return self.ask("POST", f"{BASE}/jsonrpc", body)

    def extensions(self) -> list[Any]:
        """The extensions of what was submitted since the last time."""
        submitted: list[Any] = list(self.ledger.submitted)
        self.ledger.submitted.clear()
        return [each.extensions for each in submitted]

    def test_restKeepsTraceAsExtensions(self) -> None:
        self.ask("GET", GET)
        more: dict[str, Any] = {"tracestate": "", "Idempotency-Key": "k"}
        self.ask("GET", f"{GET}&svc-a=b", **more)
        self.ask("POST", GET)
        [plain, keyed, posted] = self.extensions()
        self.assertEqual(plain, TRACE)
        self.assertEqual(keyed, {"svc-a": "b", "svc-traceparent": PARENT})
        self.assertEqual(posted, TRACE)

    def test_requestsWithoutTraceAreUnchanged(self) -> None:
        self.client.ask("GET", GET)
        self.client.ask("GET", GET, headers={"tracestate": STATE})
        self.assertEqual(self.extensions(), [{}, {}])

    def test_jsonRpcKeepsTraceOfEveryCall(self) -> None:
        named = {"topic": "t", "content": "eA==", "extensions": {"svc-a": "b"}}
        self.rpcCalls(named)
        self.rpcCalls(["t", None, "eA=="])
        self.rpcCalls(named, {"topic": "t", "content": "eA=="})
        both = {"svc-a": "b", **TRACE}
        self.assertEqual(self.extensions(), [both, TRACE, both, TRACE])

    def test_cloudEventKeepsTrace(self) -> None:
        attributes: dict[str, Any] = {
            "ce-specversion": "1.0",
            "ce-id": "7",
            "ce-source": "/s",
            "ce-type": "t",
        }
        answer = self.ask("POST", f"{BASE}/rest/cloudevents?topic=t", b"x", **attributes)
        self.assertEqual(answer["status"], "SUCCESS")
        [extensions] = self.extensions()
        self.assertEqual({**extensions, **TRACE}, extensions)

    def test_invalidTraceIsIgnored(self) -> None:
        for parent in ("", "00-x", PARENT.upper(), PARENT + "-00", "ff" + PARENT[2:]):
            self.assertEqual(self.ask("GET", GET, traceparent=parent)["status"], "SUCCESS")
        self.ask("GET", GET, tracestate="=")
        self.assertEqual(self.extensions(), [{}] * 5 + [{"svc-traceparent": PARENT}])

    def test_repeatedTraceparentIsIgnored(self) -> None:
        connection = self.client.connect()
        header = f"traceparent: {PARENT}\r\n"
        connection.send(f"GET {GET} HTTP/1.1\r\nHost: broker\r\n{header}{header}\r\n".encode())
        connection.send(
            f"GET {GET} HTTP/1.1\r\nHost: broker\r\n{header}tracestate: a=1\r\n"
            "tracestate: b=2\r\n\r\n".encode()
        )
        self.assertEqual(len(connection.answers()), 2)
        joined = {"svc-traceparent": PARENT, "svc-tracestate": "a=1, b=2"}
        self.assertEqual(self.extensions(), [{}, joined])

    def test_extensionOfPublisherWins(self) -> None:
        other = PARENT.replace("4", "5")
        self.ask("GET", f"{GET}&svc-traceparent={other}")
        self.rpcCalls(["t", None, "eA==", {"svc-traceparent": other}])
        self.assertEqual(self.extensions(), [{"svc-traceparent": other}] * 2)

    def test_signedEventIsNotChanged(self) -> None:
        """Its author has not signed the trace."""
        fields = "&".join(f"{name}={value}" for name, value in self.signed.items())
        answer = self.ask("GET", f"{GET}&svc-a=b&{fields}")
        self.assertEqual(answer["status"], "SUCCESS")
        given = {"topic": "t", "content": "eA==", "extensions": {"svc-a": "b"}, **self.signed}
        self.assertEqual(self.rpcCalls(given)["result"]["status"], "SUCCESS")
        self.assertEqual(self.extensions(), [{"svc-a": "b"}] * 2)

    def test_fullExtensionsHaveNoTrace(self) -> None:
        """A trace never makes a publish fail."""
        full = {"svc-a": "b" * 8180}
        answer = self.rpcCalls({"topic": "t", "content": "eA==", "extensions": full})
        self.assertEqual(answer["result"]["status"], "SUCCESS")
        self.assertEqual(self.extensions(), [full])

    def test_otherCallsIgnoreTrace(self) -> None:
        self.assertIs(self.ask("GET", f"{BASE}/rest/exist?topic=t"), True)
        for params in ([None] * 10, {"topic": 1}, 1, {"topic": "t", "extensions": 1}):
            self.assertEqual(self.rpcCalls(params), self.call(params))
        self.assertEqual(self.extensions(), [])
