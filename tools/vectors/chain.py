"""
Write the test vectors of the chain: C{python -m tools.vectors.chain [FILE]}.

The file, by default C{docs/vectors/chain.json}, is the authority once it is committed: a change
of the code that would change it changes the chain, and every chain that exists. Everything in it
follows from the numbers and texts here, so each run gives the same bytes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from svcbroker.chain import (
    Header,
    Nonces,
    Phase,
    TransactionReceipt,
    ValidatorChange,
    accountAddress,
    changePayload,
    encodeBody,
    encodeReceipts,
    faultsTolerated,
    leaderIndex,
    leafHash,
    merklePath,
    merkleRoot,
    quorum,
    topicAddress,
    votePayload,
)
from svcbroker.chain._body import receiptRoot
from svcbroker.chain._state import senderLeaf
from svcbroker.ledgers.pbft._protocol import PreparedCertificate, roundChangeDigest
from svcbroker.model import Execution
from tools.vectors.blocks import makeChain, nextBlocks
from tools.vectors.cases import (
    ALICE,
    ALONE,
    BIGGEST,
    CHAIN,
    GENESIS,
    SEEDS,
    TRANSACTIONS,
    TWINS,
    VALIDATORS,
    badBodies,
    badTransactions,
    certificates,
    oddHeader,
    sign,
)
from tools.vectors.sets import (
    FIRST,
    HISTORY,
    LATER_KEYS,
    LATER_SEEDS,
    badChanges,
    changes,
    historyPaths,
    historyRoots,
    sets,
)
from tools.vectors.shapes import (
    Json,
    blockVector,
    format3,
    format4,
    genesisVector,
    headerVector,
    hexes,
    setVector,
    stateVector,
    transactionVector,
)

DEFAULT = Path(__file__).resolve().parents[2] / "docs" / "vectors" / "chain.json"


def keyVectors() -> Json:
    """The nodes' keys."""
    later = [key.public_key().public_bytes_raw() for key in LATER_KEYS]
    return {
        name: [
            {"seed": seed.hex(), "publicKey": key.hex()}
            for seed, key in zip(seeds, keys, strict=True)
        ]
        for name, seeds, keys in (("nodes", SEEDS, VALIDATORS), ("later", LATER_SEEDS, later))
    }


def addressVectors() -> list[Json]:
    """Addresses of topics and accounts."""
    makers: Mapping[str, Callable[[bytes, str], bytes]] = {
        "topic": topicAddress,
        "account": accountAddress,
    }
    return [
        {
            "of": of,
            "chain": chain.hex(),
            "name": name,
            "address": make(chain, name).hex(),
        }
        for of, make in makers.items()
        for chain in (CHAIN, ALONE.chain)
        for name in ("broker", "com/example/test", "\x80")
    ]


def bodyVectors() -> list[Json]:
    """Bodies of no, one and several transactions."""
    vectors = []
    for names in ([], ["open"], ["open", "publish nothing", "one extension", "publish"]):
        body, offsets = encodeBody([TRANSACTIONS[name] for name in names])
        vectors.append({"transactions": names, "body": body.hex(), "offsets": list(offsets)})
    return vectors


def receiptVectors() -> list[Json]:
    """Receipts and their roots."""
    some = [
        TransactionReceipt(Execution.DONE, 0),
        TransactionReceipt(Execution.DONE, 1),
        TransactionReceipt(Execution.TOPIC_NOT_FOUND, 0),
        TransactionReceipt(Execution.REPEATED, 0),
        TransactionReceipt(Execution.DONE, BIGGEST),
    ]
    hashes = [transaction.hash for transaction in TRANSACTIONS.values()][: len(some)]
    return [
        {
            "receipts": [[receipt.execution.name, receipt.sequence] for receipt in some[:count]],
            "transactionHashes": hexes(hashes[:count]),
            "encoded": encodeReceipts(some[:count]).hex(),
            "root": receiptRoot(hashes[:count], encodeReceipts(some[:count])).hex(),
        }
        for count in (0, 1, len(some))
    ]


def merkleVectors() -> list[Json]:
    """Trees of 0 to 9 leaves; leaf number n holds n bytes of the value n."""
    leaves = [bytes([number]) * number for number in range(9)]
    hashes = [leafHash(leaf) for leaf in leaves]
    return [
        {
            "leaves": hexes(leaves[:count]),
            "leafHashes": hexes(hashes[:count]),
            "root": merkleRoot(hashes[:count]).hex(),
            "paths": [hexes(merklePath(hashes[:count], index)) for index in range(count)],
        }
        for count in range(10)
    ]


def historyVector() -> Json:
    """Histories of 0 headers and more, and paths in them."""
    return {
        "headers": hexes(HISTORY),
        "roots": hexes(historyRoots()),
        "paths": [
            {"height": height, "size": size, "path": hexes(path)}
            for height, size, path in historyPaths()
        ],
    }


def changeVector(why: str, change: ValidatorChange) -> Json:
    """A change of the first set of the small chain, which may be refused."""
    return {
        "refused": why,
        "following": change.following.hash.hex(),
        "payload": changePayload(CHAIN, FIRST, change.following).hex(),
        "encoded": change.encode().hex(),
    }


def accountVectors() -> list[Json]:
    """Accounts after nonces, accepted and refused."""
    cases = [
        [0],
        [1, 1, 2, 0],
        [3, 1, 2, 2],
        [1, 1024, 1, 2],
        [1, 1025, 1, 2, 2],
        [5, 2000, 976, 977, 2000],
        [1024, 1, 2048, 1024, 1025, 1024],
        [BIGGEST, BIGGEST, 1, BIGGEST - 1023, BIGGEST - 1024],
    ]
    vectors = []
    for nonces in cases:
        account = Nonces()
        accepted = []
        for nonce in nonces:
            accepted.append(account.accepts(nonce))
            account = account.after(nonce) if accepted[-1] else account
        vectors.append(
            {
                "nonces": nonces,
                "accepted": accepted,
                "encoded": account.encode().hex(),
                "address": ALICE.hex(),
                "leaf": senderLeaf(ALICE, account).hex(),
            }
        )
    return vectors


def voteVectors(header: Header) -> list[Json]:
    """A vote of each phase."""
    return [
        {
            "phase": phase.name,
            "signer": index,
            "height": header.height,
            "round": 7 + index,
            "digest": header.hash.hex(),
            "payload": votePayload(phase, CHAIN, header.height, 7 + index, header.hash).hex(),
            "signature": sign(index, phase, header.height, 7 + index, header.hash).hex(),
        }
        for index, phase in enumerate(Phase)
    ]


def roundChangeVectors(header: Header) -> list[Json]:
    """The bytes that a round change signs, bound to no block and to one."""
    bound = PreparedCertificate(round=3, digest=header.hash, signatures=())
    return [
        {"prepared": None, "digest": roundChangeDigest(None).hex()},
        {
            "prepared": {"round": bound.round, "header": header.hash.hex()},
            "digest": roundChangeDigest(bound).hex(),
        },
    ]


def certificateVectors(header: Header, other: Header) -> list[Json]:
    """Certificates for a header, and things that are none."""
    return [
        {
            "refused": why,
            "round": certificate.round,
            "signatures": [[index, signature.hex()] for index, signature in certificate.signatures],
            "encoded": certificate.encode().hex(),
        }
        for why, certificate in certificates(header, other)
    ]


def nextBlockVectors() -> list[Json]:
    """Blocks that may not follow the small chain, each for one reason, and one that may."""
    return [
        {"refused": why, "header": header.encoded.hex(), "body": body.hex()}
        for why, (header, body) in nextBlocks().items()
    ]


def vectors() -> Json:
    """All of them."""
    made = makeChain()
    headers = [candidate.header for candidate, _, _ in made]
    odd = oddHeader()
    return {
        "version": 2,
        "keys": keyVectors(),
        "genesis": [genesisVector(GENESIS), genesisVector(ALONE)],
        "addresses": addressVectors(),
        "transactions": [transactionVector(*item) for item in TRANSACTIONS.items()],
        "malformedTransactions": [
            {"why": why, "entry": entry.hex()} for why, entry in badTransactions().items()
        ],
        "bodies": bodyVectors(),
        "malformedBodies": [{"why": why, "body": body.hex()} for why, body in badBodies().items()],
        "receipts": receiptVectors(),
        "merkle": merkleVectors(),
        "history": historyVector(),
        "sets": [setVector(validators) for validators in sets()],
        "changes": [changeVector(*item) for item in changes()],
        "malformedChanges": [
            {"why": why, "encoded": encoded.hex()} for why, encoded in badChanges().items()
        ],
        "accounts": accountVectors(),
        "emptyState": stateVector((), ()),
        "header": headerVector(odd),
        "leaders": [
            {
                "view": view,
                "height": height,
                "nodes": nodes,
                "leader": leaderIndex(view, height, nodes),
            }
            for view, height, nodes in [
                (0, 1, 1),
                (0, 1, 4),
                (0, 4, 4),
                (3, 2, 4),
                (9, 9, 7),
                (BIGGEST, BIGGEST, 7),
            ]
        ],
        "quorums": [
            {"nodes": nodes, "faults": faultsTolerated(nodes), "quorum": quorum(nodes)}
            for nodes in range(1, 14)
        ],
        "votes": voteVectors(headers[0]),
        "roundChangeDigests": roundChangeVectors(headers[0]),
        "certificates": certificateVectors(headers[0], headers[1]),
        "twins": {"topics": list(TWINS), "prefix": sha256(TWINS[0].encode()).hexdigest()[:8]},
        "blocks": [blockVector(*block) for block in made],
        "nextBlocks": nextBlockVectors(),
        "format3": format3(),
        "format4": format4(),
    }


def main(arguments: Sequence[str]) -> None:
    """Write the file."""
    path = Path(arguments[0]) if arguments else DEFAULT
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(vectors(), indent=1) + "\n", encoding="ascii")


if __name__ == "__main__":
    main(sys.argv[1:])
