"""
The form in which the test vectors of format 4 are written.
"""

from __future__ import annotations

from msgspec.structs import replace

from tools.vectorcases import oddHeader
from tools.vectorcases4 import STATEMENTS2, TRANSACTIONS4, badTransactions4
from tools.vectorchain3 import lastBodies, makeChain
from tools.vectorchain4 import BLOCKS4, nextBlocks4
from tools.vectorparts4 import partVectors
from tools.vectorshapes import Json, headerVector
from tools.vectorshapes3 import block3Vector, nextVectors, statementVectors, transaction2Vector


def format4() -> Json:
    """All of them."""
    made = makeChain(BLOCKS4)
    return {
        "statements": statementVectors(STATEMENTS2),
        "transactions": [transaction2Vector(name, each) for name, each in TRANSACTIONS4.items()],
        "malformedTransactions": [
            {"why": why, "entry": entry.hex()} for why, entry in badTransactions4().items()
        ],
        "header": {"version": 4, **headerVector(replace(oddHeader(), version=4))},
        "blocks": [
            block3Vector(block, body) for block, body in zip(made, lastBodies(made), strict=True)
        ],
        "nextBlocks": nextVectors(nextBlocks4(made)),
        **partVectors(),
    }
