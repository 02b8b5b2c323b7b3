"""
Evidence bundles: the proofs of some events, with a page that verifies them in a browser, in one
file that can be handed to somebody.
"""

from ._bundle import (
    MAX_SIZE,
    MAX_STAMP,
    REQUEST_TYPE,
    Bundle,
    Stamp,
    StampRefused,
    requestStamp,
    stampName,
)
from ._readme import ErasureNote

__all__ = [
    "MAX_SIZE",
    "MAX_STAMP",
    "REQUEST_TYPE",
    "Bundle",
    "ErasureNote",
    "Stamp",
    "StampRefused",
    "requestStamp",
    "stampName",
]
