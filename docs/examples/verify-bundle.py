"""
Verify a bundle of svcbroker without svcbroker, from docs/transparency.rst and, for what is in the
proofs, docs/proofs.rst (verify.py, beside this file) and the specifications of c2sp.org:

    python verify-bundle.py BUNDLE.zip [POLICY]

POLICY is whom you trust; without it, the policy in the bundle is taken: compare its keys.
"""

import json
import re
import sys
from base64 import b64decode, b64encode
from hashlib import sha256
from struct import pack, unpack_from
from zlib import crc32

from verify import H, checkSignature, headerHash, need, number, once, parse, rootOf, verify

# The archive


def archive(files):
    """The bytes of a bundle with these files."""
    hashes = {name: sha256(files[name]).hexdigest() for name in sorted(files)}
    manifest = json.dumps({"files": hashes, "format": "svcbroker/bundle/1"}, indent=1) + "\n"
    body, directory = b"", b""
    everything = sorted({**files, "manifest.json": manifest.encode()}.items())
    for name, data in everything:
        shared = pack("<HHHHHIIIHH", 20, 0, 0, 0, 33, crc32(data), *[len(data)] * 2, len(name), 0)
        directory += b"PK\1\2\x14\3" + shared + pack("<HHHII", 0, 0, 0, 0o100644 << 16, len(body))
        directory += name.encode("ascii")
        body += b"PK\3\4" + shared + name.encode("ascii") + data
    count = len(everything)
    end = pack("<HHHHIIH", 0, 0, count, count, len(directory), len(body), 0)
    return body + directory + b"PK\5\6" + end


def filesOf(data):
    """The files of a bundle, of which every byte counts."""
    need(len(data) <= 1 << 28, "the archive is too large")
    files, at = {}, 0
    while data[at : at + 4] == b"PK\3\4" and at + 30 <= len(data):
        size, _, length, more = unpack_from("<IIHH", data, at + 18)
        start = at + 30 + length + more
        name = data[at + 30 : at + 30 + length].decode("ascii")
        need(name not in files, "a file is there twice")
        files[name], at = data[start : start + size], start + size
    files.pop("manifest.json", None)
    need(len(files) < 65535, "there are too many files")
    need(archive(files) == data, "a byte of the archive is another one")
    return files


# Policies: c2sp.org/tlog-policy


def bytesOf(text):
    data = b64decode(text, validate=True)
    need(b64encode(data).decode() == text, "not the only base64 of its bytes")
    return data


def keyOf(text, *kinds):
    """A key: its name, its id in signatures, and its bytes."""
    name, id, encoded = text.split("+", 2)
    data = bytesOf(encoded)
    need(name and name.isprintable() and not re.search(r"\s", name), "a key has no name")
    need(re.fullmatch("[0-9a-f]{8}", id), "a key has no id")
    need(data and data[0] in kinds, "a key is of another type")
    need(len(data) == (1313 if data[0] == 6 else 33), "a key has another size")
    need(H(name.encode(), b"\n", data)[:4].hex() == id, "the id of a key is another one")
    return name, bytes.fromhex(id), data[1:]


def readPolicy(data):
    """Logs, witnesses by name, groups by name, and the name of the quorum."""
    text = data.decode("utf-8")
    need(not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text), "the policy has control characters")
    need(text.count("\n") < 1000, "the policy has too many lines")
    logs, witnesses, groups, quorum, members = [], {}, {}, None, set()
    for line in text.split("\n"):
        word, *rest = [each for each in re.split("[ \t]+", line) if each] or ["#"]
        taken = {"none", *witnesses, *groups}
        if word == "log" and 1 <= len(rest) <= 2:
            logs.append(keyOf(rest[0], 1))
        elif word == "witness" and 2 <= len(rest) <= 3 and rest[0] not in taken:
            witnesses[rest[0]] = keyOf(rest[1], 4, 6)
        elif word == "group" and len(rest) >= 3 and rest[0] not in taken:
            name, count, *those = rest
            need(set(those) <= taken - {"none"}, "a member is not defined")
            need(len({*those}) == len(those) and not members & {*those}, "a member is there twice")
            members |= {*those}
            needed = {"all": len(those), "any": 1}.get(count)
            if needed is None:
                need(re.fullmatch("[1-9][0-9]{0,3}", count), "a group needs no number")
                needed = int(count)
            need(needed <= len(those), "a group needs more than it has")
            groups[name] = (needed, those)
        elif word == "quorum" and len(rest) == 1 and quorum is None and rest[0] in taken:
            quorum = rest[0]
        else:
            need(word.startswith("#"), "a line of the policy is not known")
    need(quorum is not None, "the policy has no quorum")
    for keys in (logs, witnesses.values()):
        need(len({key for _, _, key in keys}) == len(keys), "a key is there twice")
    return logs, witnesses, groups, quorum


# Checkpoints and proofs: c2sp.org/signed-note, tlog-checkpoint, tlog-cosignature, tlog-proof


def decimal(text):
    need(re.fullmatch("0|[1-9][0-9]{0,15}", text), "no number")
    return int(text)


def checkpointOf(note, policy):
    """Size and root of a checkpoint that the policy accepts, and by when witnesses have seen it."""
    logs, witnesses, groups, quorum = policy
    need(len(note) <= 65536, "the note is too long")
    note = note.decode("utf-8")
    need(not re.search(r"[\x00-\x09\x0b-\x1f]", note), "the note has control characters")
    text, _, lines = note.rpartition("\n\n")
    need(lines.endswith("\n") and lines.count("\n") <= 64, "there are no signatures, or too many")
    origin, size, root, *more = text.split("\n")
    need(origin and all(more), "this is no checkpoint")
    signed, seen = False, {}
    for line in lines[:-1].split("\n"):
        match = re.fullmatch("\u2014 ([^\\s+]+) (\\S+)", line)
        need(match, "a line is not one of a signature")
        id, signature = bytesOf(match[2])[:4], bytesOf(match[2])[4:]
        need(signature, "there is no signature")
        for name, known, key in logs:
            if name == origin == match[1] and known == id:
                checkSignature(key, signature, f"{text}\n".encode())
                signed = True
        for witness, (name, known, key) in witnesses.items():
            # This program does not check cosignatures of ML-DSA, and does not count them.
            if name == match[1] and known == id and len(key) == 32:
                need(len(signature) == 72, "a cosignature has another size")
                time = int.from_bytes(signature[:8], "big")
                message = f"cosignature/v1\ntime {time}\n{text}\n"
                checkSignature(key, signature[8:], message.encode())
                # Witnesses count whole seconds.
                seen[witness] = min(seen.get(witness, time + 1), time + 1)
    need(signed, "no log of the policy has signed the checkpoint")
    met = {"none", *seen}
    for name, (needed, members) in groups.items():
        if sum(each in met for each in members) >= needed:
            met.add(name)
    need(quorum in met, "too few witnesses have signed the checkpoint")
    root = bytesOf(root)
    need(len(root) == 32, "a root has another size")
    return decimal(size), root, seen


def eventOf(data, policy):
    """The event of a proof, and by when witnesses have seen it."""
    head, _, note = data.partition(b"\n\n")
    first, extra, index, *path = head.decode("ascii").split("\n")
    need(first == "c2sp.org/tlog-proof@v1", "this is no proof of c2sp.org/tlog-proof")
    need(extra.startswith("extra ") and index.startswith("index "), "a line is missing")
    size, root, seen = checkpointOf(note, policy)
    proof = bytesOf(extra[6:])
    header = parse(proof)["block"]["header"]
    hash, height = headerHash(header), int.from_bytes(number(header["height"]), "big")
    need(decimal(index[6:]) == height and len(path) <= 63, "the proof is of another block")
    siblings = [bytesOf(each).hex() for each in path]
    need(rootOf(H(b"\0", hash), height, size, siblings) == root, "the block is not in the log")
    return verify(proof, f"{height}:{hash.hex()}")["event"], seen


# The bundle


def checkErasures(data):
    said = json.loads(data.decode("utf-8"), object_pairs_hook=once)
    need(isinstance(said, dict), "erasures.json is no object")
    for note in said.values():
        need(isinstance(note, dict), "an erasure is no object")
        need({*note} == {"timestamp", "account", "reason", "transHash"}, "an erasure is not one")
        texts = [note["account"], note["reason"], note["transHash"]]
        need(type(note["timestamp"]) is int, "an erasure has no time")
        need(all(isinstance(each, str) for each in texts), "an erasure is not one")
        "".join(texts).encode("utf-8")


def verifyBundle(data, policy=None):
    """The events of a bundle, by their ids, with the times by which witnesses have seen them."""
    files = filesOf(data)
    own = files.pop("policy.txt", None)
    need(own is not None, "there is no policy")
    own.decode("utf-8")
    trusted = readPolicy(own if policy is None else policy)
    for name in ("README.txt", "verify.html"):
        files.pop(name, None)
    checkErasures(files.pop("erasures.json", b"{}"))
    proofs = {}
    for name, content in files.items():
        if name.startswith("timestamps/"):
            continue
        match = re.fullmatch(r"proofs/(.*)\.tlog-proof", name, re.DOTALL)
        need(match, "a file is not known")
        proofs[match[1]] = event, _ = eventOf(content, trusted)
        need(event["eventId"] == match[1], "a proof is of another event")
    need(proofs, "there are no proofs")
    return proofs


def main(path, *policies):
    with open(path, "rb") as file:
        data = file.read()
    policy = None
    for each in policies:
        with open(each, "rb") as file:
            policy = file.read()
    try:
        proofs = verifyBundle(data, policy)
    except Exception as error:
        sys.stdout.write(f"NOT PROVED: {error or type(error).__name__}\n")
        return 1
    for name, (event, seen) in proofs.items():
        sys.stdout.write(f"PROVED: {name} {json.dumps(event)}\n")
        for witness, time in sorted(seen.items()):
            sys.stdout.write(f"  seen by {witness} before second {time}\n")
    return 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("verify-bundle.py BUNDLE.zip [POLICY]")
    sys.exit(main(*sys.argv[1:]))
