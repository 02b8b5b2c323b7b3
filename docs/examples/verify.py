"""
Verify an event proof or a topic proof of svcbroker without svcbroker, from docs/proofs.rst:

    python verify.py PROOF.json TRUSTED

TRUSTED is what you trust: the hash of a genesis, or a checkpoint, HEIGHT:HASH. It needs an Ed25519
of any kind; this one is that of the package "cryptography".
"""

import json
import re
import sys
from base64 import b64decode, b64encode
from datetime import datetime
from hashlib import sha256, sha512
from itertools import pairwise

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

HEADER = "chain height parent history view proposer timestamp transactionRoot receiptRoot"
HEADER += " stateRoot validators nextValidators transactionCount transactionTotal"
TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{0,8}[1-9]))?Z", re.ASCII)
EVENT_ID = re.compile(r"([0-9a-f]{8})-([1-9][0-9]{0,18})-([1-9][0-9]{0,18})", re.ASCII)


def need(condition, why):
    if not condition:
        raise ValueError(why)


def H(*parts):
    return sha256(b"".join(parts)).digest()


def fields(value, names, optional=""):
    """The values of an object's members, of which there are no others."""
    need(isinstance(value, dict), "an object is missing")
    need(set(names.split()) <= set(value), "a member is missing")
    need(set(value) <= {*names.split(), *optional.split()}, "a member is not known")
    return [value.get(name) for name in [*names.split(), *optional.split()]]


def once(pairs):
    need(len(dict(pairs)) == len(pairs), "a member is there twice")
    return dict(pairs)


def parse(data):
    """A document, bare or in the response of JSON-RPC."""
    document = json.loads(data.decode("utf-8"), object_pairs_hook=once)
    if isinstance(document, dict) and "jsonrpc" in document:
        return document.get("result")
    return document


def number(value, bits=64):
    need(type(value) is int and 0 <= value < 1 << bits, "a number is not one")
    return value.to_bytes(bits // 8, "big")


def text(value):
    need(isinstance(value, str), "a text is missing")
    return value.encode("utf-8")


def items(value):
    need(isinstance(value, list), "a list is missing")
    return value


def unhex(value, size):
    need(re.fullmatch(b"[0-9a-f]*", text(value)), "these are no hexadecimal digits")
    need(len(value) == 2 * size, "a field has another size")
    return bytes.fromhex(value)


def rootOf(leaf, index, size, path):
    """Where a path leads: RFC 6962, 2.1.1."""
    need(type(index) is int and 0 <= index < size, "there is no such leaf")
    node, last, path = leaf, size - 1, [unhex(each, 32) for each in items(path)]
    while last:
        if index % 2 or index < last:
            need(path, "a path is too short")
            sibling = path.pop(0)
            node = H(b"\1", sibling, node) if index % 2 else H(b"\1", node, sibling)
        index, last = index // 2, last // 2
    need(not path, "a path is too long")
    return node


def validators(generation, keys):
    """The hash of a set of nodes."""
    need(1 <= len(keys) <= 256 and len(set(keys)) == len(keys), "a set of nodes is not one")
    return H(b"svcbroker/validators\0", number(generation), number(len(keys), 16), *keys)


def headerHash(header):
    names, bits = HEADER.split(), {"proposer": 16, "transactionCount": 32}
    *values, version = fields(header, HEADER, "version")
    need("version" not in header or (type(version) is int and version in (3, 4)), "a format")
    values = zip(names, values, strict=True)
    numbers = {"height", "view", "timestamp", "transactionTotal", *bits}
    encoded = [number(v, bits.get(n, 64)) if n in numbers else unhex(v, 32) for n, v in values]
    return H(b"svcbroker/header", bytes([version or 2]), *encoded)


def checkSignature(key, signature, message):
    """Check a signature by the chain's rule."""
    y = int.from_bytes(key, "little") % 2**255
    need(y < P and y not in LOW_ORDER, "a key is weak")
    Ed25519PublicKey.from_public_bytes(key).verify(signature, message)


def checkFinal(header, certificate, known):
    """Check that a header is signed by the nodes whose turn it was; its hash."""
    chain, hash = known["chain"], headerHash(header)
    need(isinstance(certificate, dict), "a certificate is missing")
    known["kinds"].add(str(certificate.get("kind")))
    need(len(known["kinds"]) == 1, "certificates are of two kinds")
    need(header["chain"] == chain.hex(), "a header is of another chain")
    deciding = [each for each in known["sets"] if each[0] < header["height"]]
    need(deciding, "a header has the height of genesis")
    _, generation, keys = deciding[-1]
    need(header["validators"] == validators(generation, keys).hex(), "other nodes decided")
    if certificate.get("kind") == "cometbft":
        _, block = fields(certificate, "kind lightBlock")
        checkLightBlock(block, header["height"], hash, keys, known)
        return hash
    kind, round, signatures = fields(certificate, "kind round signatures")
    need(kind == "pbft", "certificates of this kind are not known")
    vote = b"svcbroker/vote\3" + chain + number(header["height"]) + number(round) + hash
    last = -1
    for each in items(signatures):
        node, signature = fields(each, "node signature")
        need(type(node) is int and last < node < len(keys), "signers are not in order")
        checkSignature(keys[node], unhex(signature, 64), vote)
        last = node
    need(len(signatures) >= len(keys) - (len(keys) - 1) // 3, "there are too few signatures")
    return hash


# What a CometBFT engine signs: canonical Protocol Buffers.


def varint(value):
    need(type(value) is int and -(1 << 63) <= value < 1 << 63, "a number is not one")
    value %= 1 << 64
    out = []
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(index, data):
    """An inner message, or a text."""
    return bytes([index << 3 | 2]) + varint(len(data)) + data


def filled(index, data):
    return field(index, data) if data else b""


def whole(index, value):
    need(type(value) is int and 0 <= value < 1 << 63, "a number is not one")
    return bytes([index << 3]) + varint(value) if value else b""


def fixed(index, value):
    need(type(value) is int and 0 <= value < 1 << 63, "a number is not one")
    return bytes([index << 3 | 1]) + value.to_bytes(8, "little") if value else b""


def engineHex(value):
    need(re.fullmatch(b"([0-9A-F]{2})*", text(value)), "these are no hexadecimal digits")
    return bytes.fromhex(value)


def engineBase64(value):
    data = b64decode(text(value), validate=True)
    need(b64encode(data) == text(value), "a field is not in canonical Base64")
    return data


def instant(value):
    """A time in nanoseconds since the epoch."""
    found = TIME.fullmatch(text(value).decode())
    need(found, "a time is not one")
    since = datetime(*map(int, found.groups()[:6])) - datetime(1970, 1, 1)
    seconds = since.days * 86400 + since.seconds
    return seconds * 10**9 + int((found[7] or "").ljust(9, "0"))


def timestamp(time):
    seconds, nanos = divmod(time, 10**9)
    return (bytes([8]) + varint(seconds) if seconds else b"") + whole(2, nanos)


def blockId(hash, parts):
    total, partsHash = fields(parts, "total hash")
    return filled(1, hash) + field(2, whole(1, total) + filled(2, engineHex(partsHash)))


def tree(leaves):
    """The root over hashes of leaves: RFC 6962, 2.1."""
    if len(leaves) == 1:
        return leaves[0]
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return H(b"\1", tree(leaves[:half]), tree(leaves[half:]))


P, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D, ROOT = -121665 * pow(121666, P - 2, P) % P, pow(2, (P - 1) // 4, P)
EIGHTH = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
LOW_ORDER = {0, 1, P - 1, EIGHTH, P - EIGHTH}


def point(data):
    """The point of the curve that some bytes encode, canonically or not; None if there is none."""
    encoded = int.from_bytes(data, "little")
    y = encoded % 2**255 % P
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    for x in (pow(square, (P + 3) // 8, P), pow(square, (P + 3) // 8, P) * ROOT % P):
        if x * x % P == square:
            return (-x % P if x & 1 != encoded >> 255 else x), y
    return None


def plus(one, other):
    """The sum of two points."""
    (a, b), (c, d) = one, other
    product = D * a * b * c * d % P
    x = (a * d + b * c) * pow(1 + product, P - 2, P)
    return x % P, (b * d + a * c) * pow(1 - product, P - 2, P) % P


def times(factor, one):
    """A multiple of a point."""
    result = (0, 1)
    for bit in bin(factor)[2:]:
        result = plus(result, result)
        result = plus(result, one) if bit == "1" else result
    return result


def checkVote(key, signed, signature):
    """Check the signature of an engine's validator, by ZIP-215."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, signed)
    except InvalidSignature:
        # OpenSSL's rule is narrower.
        checkZip215(key, signed, signature)


def checkZip215(key, signed, signature):
    """Check a signature that may be valid by ZIP-215 alone."""
    public, commitment = point(key), point(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    need(len(signature) == 64 and public and commitment and scalar < ORDER, "a signature")
    challenge = int.from_bytes(sha512(signature[:32] + key + signed).digest(), "little") % ORDER
    base = point((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))
    right = times(8, plus(commitment, times(challenge, public)))
    need(times(8, times(scalar, base)) == right, "a vote is not signed")


def engineSet(keys, power):
    """The hash of a set of validators of equal power, and their keys in the engine's order."""
    ordered = sorted(keys, key=lambda key: H(key)[:20])
    leaves = [H(b"\0", field(1, field(1, key)) + whole(2, power)) for key in ordered]
    return tree(leaves), ordered


def checkLightBlock(block, height, hash, keys, known):
    """Check that the engine's block after one of ours names it, and is decided."""
    header, round, parts, votes, members = fields(block, "header round parts votes validators")
    names = "version chain_id height time last_block_id last_commit_hash data_hash"
    names += " validators_hash next_validators_hash consensus_hash app_hash last_results_hash"
    version, chainId, engineHeight, time, last, *hashes = fields(
        header, names + " evidence_hash proposer_address"
    )
    (blockVersion, app), (lastHash, lastParts) = (
        fields(version, "block app"),
        fields(last, "hash parts"),
    )
    now = instant(time)
    encoded = [
        whole(1, blockVersion) + whole(2, app),
        filled(1, text(chainId)),
        whole(1, engineHeight),
        timestamp(now),
        blockId(engineHex(lastHash), lastParts),
        *(filled(1, engineHex(each)) for each in hashes),
    ]
    own = tree([H(b"\0", each) for each in encoded])
    _, _, validatorsHash, next, _, app, *_ = map(engineHex, hashes)
    need(engineHeight == height + 1 and app == hash, "the engine's block names another one")
    need(text(chainId) == known["group"], "the engine's block is of another chain")
    need(items(members), "there are no validators")
    _, power = items(members[0])
    need(type(power) is int and 1 <= power <= 1 << 60, "validators")
    root, ordered = engineSet(keys, power)
    need(validatorsHash == root, "other validators decided")
    need(len(items(members)) == len(ordered) == len(items(votes)), "a validator is missing")
    count = 0
    for key, member, vote in zip(ordered, members, votes, strict=True):
        memberKey, each = items(member)
        need(engineBase64(memberKey) == key and type(each) is int and each == power, "validators")
        if vote is not None:
            when, signature = items(vote)
            signed = b"\x08\2" + fixed(2, engineHeight) + fixed(3, round)
            signed += field(4, blockId(own, parts)) + field(5, timestamp(instant(when)))
            signed += filled(6, text(chainId))
            checkVote(key, varint(len(signed)) + signed, engineBase64(signature))
            count += 1
    need(3 * count > 2 * len(keys), "there are too few votes")
    known["engine"].append((engineHeight, now, own, engineHex(lastHash), next, power))


def checkEngine(known):
    """Check that the engine's blocks are of one chain."""
    blocks = sorted(known["engine"], key=lambda block: block[0])
    need(not blocks or blocks[0][1] >= known["created"] * 10**6, "a block is before genesis")
    for one, other in pairwise(blocks):
        apart = other[0] - one[0]
        need(apart or one[2] == other[2], "two blocks have one height")
        need(apart != 1 or one[2] == other[3], "a block does not follow the one before")
        need(not apart or one[1] < other[1], "time goes backwards")


def contentOf(event):
    need(("content" in event) != ("contentBase64" in event), "an event has one content")
    if "content" in event:
        return text(event["content"])
    data = b64decode(text(event["contentBase64"]), validate=True)
    need(b64encode(data) == text(event["contentBase64"]), "the content is not in canonical Base64")
    return data


def encodePairs(pairs):
    """Extensions as the chain encodes them."""
    sizes = [number(len(key), 16) + number(len(value), 16) for key, value in pairs]
    each = [size + key + value for size, (key, value) in zip(sizes, pairs, strict=True)]
    return number(len(pairs), 16) + b"".join(each)


def eventMembers(event, isVersioned):
    """The members that an event must have, from those that it may have."""
    names = "eventId topicName extensions sender nonce timestamp"
    if not isVersioned:
        return names
    names += " version"
    isErased, hasAuthor = "commitment" in event, "author" in event
    names += " commitment" if isErased else ""
    if event.get("version") != 1:
        names += "" if isErased else " salt"
        if hasAuthor:
            names += " author signedAt" + ("" if isErased else " signature")
            if event.get("version") == 3 and "statement" in event:
                names += " statement"
                need(type(event["statement"]) is int and event["statement"] == 2, "a statement")
        if "idempotencyKey" in event:
            names += " idempotencyKey" + ("" if hasAuthor else " owner")
        names += " expectedSequence" if "expectedSequence" in event else ""
        if isErased and "hasPrivateExtensions" in event:
            names += " hasPrivateExtensions"
            need(event["hasPrivateExtensions"] is True, "hasPrivateExtensions")
    return names


def transactionHash(event, isVersioned, chain):
    """The hash of the transaction that published an event. Its author has signed it."""
    need(isinstance(event, dict), "an object is missing")
    isErased, hasAuthor = isVersioned and "commitment" in event, "author" in event
    fields(event, eventMembers(event, isVersioned), "" if isErased else "content contentBase64")
    version, extensions, topic = (
        event["version"] if isVersioned else 1,
        event["extensions"],
        text(event["topicName"]),
    )
    need(type(version) is int and version in (1, 2, 3), "the version is not known")
    need(isinstance(extensions, dict), "extensions are an object")
    pairs = sorted((text(key), text(value)) for key, value in extensions.items())
    private = [each for each in pairs if version != 1 and each[0].startswith(b"svc-private-")]
    need(not (isErased and private), "a private extension is not erased")
    data = b"" if isErased else contentOf(event)

    # What versions 2 and 3 add to the head, and what stands before the content
    claims, key, options = b"", text(event.get("idempotencyKey", "")), 0
    if hasAuthor:
        options |= 1
        claims += unhex(event["author"], 32) + number(event["signedAt"])
    if "idempotencyKey" in event:
        options |= 2
        claims += b"" if hasAuthor else unhex(event["owner"], 20)
        claims += number(len(key), 8) + key
    if "expectedSequence" in event:
        options |= 4
        claims += number(event["expectedSequence"])
    if private or "hasPrivateExtensions" in event:
        options |= 8
    if "statement" in event:
        options |= 16
    if isErased:
        commitment = unhex(event["commitment"], 32)
        need(version != 1 or commitment != H(), "there is a content: none")
    elif version == 1:
        commitment = H(data)
    else:
        seal = unhex(event["salt"], 32) + (unhex(event["signature"], 64) if hasAuthor else b"")
        seal += encodePairs(private) if private else b""
        commitment = H(b"svcbroker/content", seal, data)
    head = bytes([version, 3]) + unhex(event["sender"], 20) + number(event["nonce"])
    head += number(event["timestamp"]) + commitment + number(len(topic), 16) + topic
    head += bytes([options]) + claims if version != 1 else b""
    head += encodePairs([pair for pair in pairs if pair not in private])

    # What the author has signed
    if hasAuthor and not isErased:
        statement = [b"svcbroker/statement/%d" % event.get("statement", 1)]
        statement += [b"chain=" + chain.hex().encode(), b"topic=" + topic]
        statement += [b"content=" + H(data).hex().encode(), b"time=%d" % event["signedAt"]]
        statement += [b"key=" + key]
        if "statement" in event:
            statement += [b"expected=" + str(event.get("expectedSequence", "")).encode()]
        for name, value in pairs:
            statement += [b"extension=" + name.hex().encode() + b":" + value.hex().encode()]
        signed = b"".join(line + b"\n" for line in statement)
        checkSignature(unhex(event["author"], 32), unhex(event["signature"], 64), signed)
    return H(b"\0", head)


def begin(genesis, changes):
    """The validators of each height, from the genesis and the changes of a proof."""
    group, created, nodes, said, topics = fields(genesis, "group created nodes chain", "topics")
    need(topics == "utf8" or "topics" not in genesis, "the genesis has another rule of topics")
    keys = [unhex(key, 32) for key in items(nodes)]
    start = [number(len(text(group)), 16), text(group), number(created), number(len(keys), 16)]
    version, rule = (b"\2", b"\1") if topics else (b"\1", b"")
    chain = H(b"svcbroker/genesis", version, *start, *keys, rule)
    need(said == chain.hex(), "the genesis names another chain")
    validators(0, keys)
    sets = [(0, 0, keys)]
    known = {"chain": chain, "group": text(group), "created": created, "sets": sets}
    known |= {"kinds": set(), "engine": []}
    for change in items(changes):
        header, certificate, nodes = fields(change, "header certificate nodes")
        checkFinal(header, certificate, known)
        since, generation, _ = sets[-1]
        keys = [unhex(key, 32) for key in items(nodes)]
        need(header["height"] > since, "changes are not in order")
        new = validators(generation + 1, keys)
        need(header["nextValidators"] == new.hex(), "a change is to other nodes")
        if known["engine"]:
            *_, next, power = known["engine"][-1]
            need(next == engineSet(keys, power)[0], "the engine knows of no change")
        sets.append((header["height"], generation + 1, keys))
    return known


def end(known, last, trusted, isSigned, blocks):
    """Check what is left, and that the proof leads to what is trusted."""
    need(known["sets"][-1][0] < last["height"], "there are more changes than it takes")
    checkEngine(known)
    named = [f"{header['height']}:{headerHash(header).hex()}" for header in blocks]
    byChain = isSigned and trusted == known["chain"].hex()
    need(byChain or trusted in named, "it does not lead to what is trusted")


def checkHeader(header, known):
    """Check that a header without certificate may be of the chain; its hash."""
    hash = headerHash(header)
    need(
        header["chain"] == known["chain"].hex() and header["height"], "a header is of another chain"
    )
    return hash


def verifyTopic(proof, trusted):
    """Check a topic proof."""
    names = "format topic index topicPath topicCount accountRoot accountCount block genesis"
    _, topic, index, path, topics, accountRoot, accounts, block, genesis, changes = fields(
        proof, names, "changes"
    )
    known = begin(genesis, changes if "changes" in proof else [])
    header, certificate = fields(block, "header certificate")
    checkFinal(header, certificate, known)
    names = "topicName address sender created isOpen sequence height"
    name, address, sender, created, isOpen, sequence, height, authors = fields(
        topic, names, "authors"
    )
    need(type(isOpen) is bool, "a topic is open or not")
    leaf = [number(len(text(name)), 16), text(name), unhex(address, 20), unhex(sender, 20)]
    leaf += [number(created), bytes([isOpen]), number(sequence), number(height)]
    if "authors" in topic:
        generation, *members = fields(authors, "generation authors admins")
        leaf.append(number(generation))
        for most, some in zip((64, 16), members, strict=True):
            keys = [unhex(key, 32) for key in items(some)]
            need(len(keys) <= most and keys == sorted(set(keys)), "authors are not in order")
            leaf += [number(len(keys), 8), *keys]
        need(authors["authors"], "there are no authors")
    root = rootOf(H(b"\0", *leaf), index, int.from_bytes(number(topics), "big"), path)
    counts = number(topics) + root + number(accounts) + unhex(accountRoot, 32)
    need(H(b"svcbroker/state\1", counts).hex() == header["stateRoot"], "the topic is not there")
    end(known, header, trusted, True, [header])
    return proof


def verify(data, trusted):
    """Check a proof from what is trusted; the proof, if it holds."""
    proof = parse(data)
    need(isinstance(proof, dict), "an object is missing")
    if proof.get("format") == "svcbroker/topic-proof/1":
        return verifyTopic(proof, trusted)
    return verifyEvent(proof, trusted)


def verifyEvent(proof, trusted):
    """Check an event proof."""
    names = "format event index transactionPath receiptPath block genesis"
    format, event, index, transactionPath, receiptPath, block, genesis, changes, checkpoint = (
        fields(proof, names, "changes checkpoint")
    )
    isVersioned = format == "svcbroker/event-proof/3"
    isWhole = format == "svcbroker/event-proof/1"
    need(isWhole or isVersioned or format == "svcbroker/event-proof/2", "the format is not known")

    # 1. Genesis and changes of the nodes
    known = begin(genesis, changes if "changes" in proof else [])

    # 2. The event's block
    header, certificate = fields(block, "header", "certificate")
    isWhole = isWhole or (isVersioned and certificate is not None)
    need(isWhole or certificate is None, "a certificate is there")
    hash = checkFinal(header, certificate, known) if isWhole else checkHeader(header, known)

    # 3. The event
    leaf = transactionHash(event, isVersioned, known["chain"])
    topic = sha256(text(event["topicName"])).hexdigest()
    named = EVENT_ID.fullmatch(text(event["eventId"]).decode())
    need(named, "the event's id is not one")
    need(named[1] == topic[:8], "the event's id is of another topic")
    need(int(named[3]) == header["height"], "the event's id is of another block")
    need(max(int(named[2]), int(named[3])) < 1 << 63, "the event's id is not one")
    size = header["transactionCount"]
    root = rootOf(leaf, index, size, transactionPath)
    need(root.hex() == header["transactionRoot"], "the event is not in its block")
    receipt = H(b"\0", leaf, b"\0", number(int(named[2])))
    root = rootOf(receipt, index, size, receiptPath)
    need(root.hex() == header["receiptRoot"], "the event was not published as this one")

    # 4. The checkpoint, if there is one
    last, isSigned = header, isWhole
    if checkpoint is not None:
        last, path, certificate = fields(checkpoint, "header path", "certificate")
        if certificate is None:
            need(not isWhole, "a certificate is missing")
            checkHeader(last, known)
        else:
            checkFinal(last, certificate, known)
            isSigned = True
        root = rootOf(H(b"\0", hash), header["height"], last["height"], path)
        need(root.hex() == last["history"], "the block is not in the checkpoint's history")
    need(isSigned or not known["sets"][1:], "there are changes, and nothing is signed")
    end(known, last, trusted, isSigned, [header, last])
    return proof


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.stderr.write("verify.py PROOF.json TRUSTED\n")
        sys.exit(2)
    try:
        with open(sys.argv[1], "rb") as file:
            proof = verify(file.read(), sys.argv[2])
        sys.stdout.write(f"PROVED: {json.dumps(proof.get('event') or proof['topic'])}\n")
    except (ValueError, InvalidSignature, RecursionError) as error:
        sys.exit(f"NOT PROVED: {error or 'a signature does not hold'}")
