"""
Receive webhooks and check their signatures: python receiver.py PORT SECRET-FILE

SECRET-FILE is the file that the broker was given with --webhook-secret-file. An event that came
twice (an answer of ours was lost) is recognised by its id. Only the standard library is needed.
"""

import base64
import hashlib
import hmac
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

TOLERANCE = 300  # seconds


def keyOf(secret: str) -> bytes:
    """The key of a line of the file."""
    if secret.startswith("whsec_"):
        return base64.b64decode(secret.removeprefix("whsec_"))
    return secret.encode()


def isGenuine(headers, body: bytes, keys: list[bytes]) -> bool:
    """Whether a request has a signature of Standard Webhooks with one of the keys."""
    timestamp = headers.get("webhook-timestamp", "")
    if not timestamp.isdigit() or abs(time.time() - int(timestamp)) > TOLERANCE:
        return False
    message = f"{headers.get('webhook-id')}.{timestamp}.".encode() + body
    expected = [
        b"v1," + base64.b64encode(hmac.new(key, message, hashlib.sha256).digest()) for key in keys
    ]
    given = headers.get("webhook-signature", "").split(" ")
    return any(
        hmac.compare_digest(signature, each.encode()) for signature in expected for each in given
    )


class Receiver(BaseHTTPRequestHandler):
    keys: list[bytes]
    seen: set[str] = set()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not isGenuine(self.headers, body, self.keys):
            self.send_error(401, "wrong signature")
            return
        event = json.loads(body)["event"]
        if event["eventId"] not in self.seen:
            self.seen.add(event["eventId"])
            content = base64.b64decode(event["content"]).decode()
            print(event["eventId"], event["topic"], content, flush=True)
        # The broker sends the next event once it has heard this.
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def main(port: str, secretFile: str) -> None:
    Receiver.keys = [keyOf(line) for line in Path(secretFile).read_text().split()]
    server = HTTPServer(("127.0.0.1", int(port)), Receiver)
    print(f"listening on {server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
