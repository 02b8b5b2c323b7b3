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


def isGenuine(headers, body: bytes, secrets: list[bytes]) -> bool:
    timestamp = headers.get("X-Svc-Timestamp", "")
    if not timestamp.isdigit() or abs(time.time() - int(timestamp)) > TOLERANCE:
        return False
    message = timestamp.encode("ascii") + b"." + body
    given = headers.get("X-Svc-Signature", "").split(",")
    return any(
        hmac.compare_digest(f"v1={hmac.new(secret, message, hashlib.sha256).hexdigest()}", each)
        for secret in secrets
        for each in given
    )


class Receiver(BaseHTTPRequestHandler):
    secrets: list[bytes]
    seen: set[str] = set()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not isGenuine(self.headers, body, self.secrets):
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
    Receiver.secrets = Path(secretFile).read_bytes().split()
    server = HTTPServer(("127.0.0.1", int(port)), Receiver)
    print(f"listening on {server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
