"""
Write the test vectors of closed contents and reveals: C{python -m tools.vectors.closed [FILE]}.

Contents are closed here by a second implementation of c2sp.org/age, whose keys follow from names,
so each run gives the same bytes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from hmac import digest
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from msgspec import to_builtins
from msgspec.json import encode

from svcbroker.model import EventId, topicPrefix
from svcbroker.proofs import AgeIdentity, makeReveal, padded, verifyProof, withoutContent
from tools.vectors.proofchain import Json, changed
from tools.vectors.signedchain import SignedChain

DEFAULT = Path(__file__).resolve().parents[2] / "docs" / "vectors" / "closed.json"
SECRET = "AGE-SECRET-KEY-1XECTHF4HK4YGA0HXYM3PACATYTAM74YEE4J8YY7J8JKEXTCJNZLQUVTDAA"
RECIPIENT = "age1v2mvky4w9xp2cl7a9v2pr27s3wt9uvrfw82tn27l83spqc6mxueq8ydu58"
FOREIGN = {"svc-encrypted": "age"}
OURS = {**FOREIGN, "svc-padding": "spaces"}
START = b"age-encryption.org/v1\n"


def seed(name: str) -> bytes:
    """Bytes that follow from a name."""
    return sha256(f"closed vectors: {name}".encode()).digest()


def derive(key: bytes, salt: bytes, info: bytes) -> bytes:
    """HKDF-SHA-256 (RFC 5869), for 32 bytes."""
    return digest(digest(salt or bytes(32), key, "sha256"), info + b"\x01", "sha256")


def line(data: bytes) -> bytes:
    """Base64 without padding."""
    return b64encode(data).rstrip(b"=")


def close(name: str, content: bytes, recipients: Sequence[bytes], more: bytes = b"") -> bytes:
    """
    Close a content.

    @param name: what its keys follow from.
    @param more: further recipients of the header.
    """
    fileKey = seed(f"{name}, key")[:16]
    header = START
    for number, recipient in enumerate(recipients):
        own = X25519PrivateKey.from_private_bytes(seed(f"{name}, share {number}"))
        share = own.public_key().public_bytes_raw()
        shared = own.exchange(X25519PublicKey.from_public_bytes(recipient))
        key = derive(shared, share + recipient, b"age-encryption.org/v1/X25519")
        body = ChaCha20Poly1305(key).encrypt(bytes(12), fileKey, None)
        header += b"-> X25519 " + line(share) + b"\n" + line(body) + b"\n"
    header += more + b"---"
    mac = digest(derive(fileKey, b"", b"header"), header, "sha256")
    nonce = seed(f"{name}, nonce")[:16]
    cipher = ChaCha20Poly1305(derive(fileKey, nonce, b"payload"))
    pieces = [content[at : at + 65536] for at in range(0, len(content), 65536)] or [b""]
    sealed = [
        cipher.encrypt(number.to_bytes(11, "big") + bytes([number == len(pieces) - 1]), each, None)
        for number, each in enumerate(pieces)
    ]
    return header + b" " + line(mac) + b"\n" + nonce + b"".join(sealed)


def good() -> Iterator[tuple[str, bytes, Mapping[str, str], bytes]]:
    """Closed contents, with their extensions and what they say."""
    mine = AgeIdentity.parse(SECRET).public
    other = X25519PrivateKey.from_private_bytes(seed("other")).public_key().public_bytes_raw()
    yield "padded", close("padded", padded(b"price 7"), [mine]), OURS, b"price 7"
    yield "by another program", close("foreign", b"line \n  ", [mine]), FOREIGN, b"line \n  "
    yield "nothing", close("nothing", b"", [mine]), FOREIGN, b""
    yield "nothing, padded", close("empty", padded(b""), [mine]), OURS, b""
    yield "for three", close("three", padded(b"\xff\0"), [other, mine, other]), OURS, b"\xff\0"
    unknown = b"-> x-grease a b\n" + b"A" * 64 + b"\nAAAA\n"
    yield "an unknown recipient", close("grease", b"x", [mine], unknown), FOREIGN, b"x"
    exact = b"-> x-grease\n" + b"A" * 64 + b"\n\n"
    yield "a body of full lines", close("exact", b"x", [mine], exact), FOREIGN, b"x"


def bad() -> Iterator[tuple[str, bytes, Mapping[str, str]]]:
    """Contents that are not opened."""
    mine = AgeIdentity.parse(SECRET).public
    other = X25519PrivateKey.from_private_bytes(seed("other")).public_key().public_bytes_raw()
    whole = close("padded", padded(b"price 7"), [mine])
    mac = whole.index(b"--- ") + 4
    share = line(bytes(32))
    end = b"--- " + share + b"\n" + bytes(40)
    stanza = b"-> X25519 " + share + b"\n" + share + b"\n"
    yield "it is for another", close("other", b"x", [other]), FOREIGN
    yield "the header is cut", whole[: mac - 20], OURS
    yield "the MAC is cut", whole[: mac + 20], OURS
    yield "the MAC is another", whole[:mac] + line(bytes(32)) + whole[mac + 43 :], OURS
    yield "the content is cut", whole[:-1], OURS
    yield "there is no content", whole[: mac + 44 + 16], OURS
    yield "a byte of the content is another", whole[:-1] + bytes([whole[-1] ^ 1]), OURS
    yield "the version is another", whole.replace(b"/v1", b"/v2", 1), OURS
    yield "it is no file of age", b"price 7", OURS
    yield (
        "it has a passphrase",
        START + b"-> scrypt " + share + b" 30\n" + share + b"\n" + end,
        OURS,
    )
    yield "too many recipients", close("many", b"x", [mine] * 257), FOREIGN
    yield "a recipient has no share", START + stanza.replace(share, b"", 1) + end, FOREIGN
    yield "a line is too long", START + b"-> a\n" + b"A" * 65 + b"\n" + end, FOREIGN
    yield "Base64 is not canonical", START + b"-> a\nAB\n" + end, FOREIGN
    yield "the padding is missing", close("bare", b"price 7", [mine]), OURS
    yield "the padding is unknown", whole, {**FOREIGN, "svc-padding": "1099511627776"}
    yield "it is closed by something else", whole, {"svc-encrypted": "other"}


def reveals(directory: Path) -> Json:
    """Reveals of events of a chain."""
    chain = SignedChain(directory)
    chain.open("a")
    mine = [AgeIdentity.parse(SECRET)]
    contents = [close(name, padded(b"price 7"), [mine[0].public]) for name in ("one", "two")]
    header = chain.decide(
        [
            *(chain.say("a", each, author="ada", extensions=OURS) for each in contents),
            chain.say("a", b"open", extensions={"svc-private-name": "Ada"}),
        ]
    )
    ids = [EventId(topicPrefix("a"), number, header.height) for number in (1, 2, 3)]
    trusted = chain.genesis.chain
    try:
        proofs = [encode(chain.prover.event(each)) for each in ids]
        erased = json.loads(withoutContent(proofs[2]))
        made = [
            json.loads(makeReveal(each, verifyProof(each, chain=trusted), mine)) for each in proofs
        ]
    finally:
        chain.close()
    closed, second, opened = made
    event = opened["proof"]["event"]
    salt = event["salt"][:-1] + ("0" if event["salt"][-1] != "0" else "1")
    return {
        "chain": trusted.hex(),
        "good": [
            {"name": "closed", "reveal": closed, "opened": "price 7"},
            {"name": "open", "reveal": opened, "opened": "open"},
        ],
        "bad": [
            {"why": why, "reveal": reveal}
            for why, reveal in (
                (
                    "the key is that of another event",
                    changed(closed, "fileKey", to=second["fileKey"]),
                ),
                ("the key is short", changed(closed, "fileKey", to="00")),
                ("there is no key", changed(closed, "fileKey", to=None)),
                ("there is a key, and nothing to open", {**opened, "fileKey": "00" * 16}),
                ("the content is another", changed(opened, "proof", "event", "content", to="Open")),
                ("the salt is another", changed(opened, "proof", "event", "salt", to=salt)),
                ("the content is left out", {**opened, "proof": erased}),
                ("the proof is of another event", {**closed, "proof": second["proof"]}),
                ("the format is unknown", changed(opened, "format", to="svcbroker/reveal/2")),
                ("there is a member that is not known", {**opened, "note": ""}),
                ("there is no proof", {"format": "svcbroker/reveal/1"}),
            )
        ],
    }


def vectors() -> Json:
    """All of them."""
    with tempfile.TemporaryDirectory() as directory:
        found = reveals(Path(directory))
    encoded = {
        "identity": SECRET,
        "recipient": RECIPIENT,
        "contents": [
            {
                "name": name,
                "closed": b64encode(closed).decode(),
                "extensions": extensions,
                "opened": b64encode(plain).decode(),
            }
            for name, closed, extensions, plain in good()
        ],
        "badContents": [
            {"why": why, "closed": b64encode(closed).decode(), "extensions": extensions}
            for why, closed, extensions in bad()
        ],
        "reveals": found,
    }
    made: Json = to_builtins(encoded)
    return made


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    path.write_text(json.dumps(vectors(), indent=1) + "\n", "ascii")
