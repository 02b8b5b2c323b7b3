"""Sign a file as a statement, register it, and write it with its receipt to FILE.scitt.

python register-statement.py http://127.0.0.1:8080 https://acme.example issuer.pem FILE [--hash]

With --hash the statement has the SHA-256 of the file in place of the file (RFC 9995).
"""

import sys
import time
from hashlib import sha256
from pathlib import Path

import cbor2
import httpx
from cryptography.hazmat.primitives.serialization import load_pem_private_key

service, issuer, keyFile, file, *options = sys.argv[1:]
key = load_pem_private_key(Path(keyFile).read_bytes(), None)  # of Ed25519
payload = Path(file).read_bytes()
claims = {1: issuer, 2: f"file:{Path(file).name}", 6: int(time.time())}
header = {3: "application/octet-stream"}
if options == ["--hash"]:
    header, payload = {258: -16, 259: header[3]}, sha256(payload).digest()
protected = cbor2.dumps({1: -8, 4: b"key-1", 15: claims, **header})
signature = key.sign(cbor2.dumps(["Signature1", protected, b"", payload]))
statement = b"\xd2" + cbor2.dumps([protected, {}, payload, signature])

with httpx.Client(base_url=service, headers={"Content-Type": "application/cose"}) as client:
    answer = client.post("/entries", content=statement)
    location = answer.headers.get("Location")
    while answer.status_code in (202, 204):  # the block is not decided yet
        time.sleep(int(answer.headers["Retry-After"]))
        answer = client.get(location)
if answer.is_error:
    problem = cbor2.loads(answer.content)
    sys.exit(f"{answer.status_code} {problem[-1]}: {problem[-2]}")

whole = b"\xd2" + cbor2.dumps([protected, {394: [answer.content]}, payload, signature])
Path(f"{file}.scitt").write_bytes(whole)
