"""
Evidence bundles: the proofs of some events, with a page that verifies them in a browser, in one
file that can be handed to somebody.
"""

from ._bundle import MAX_SIZE, Bundle, decodeArchive, encodeArchive
from ._readme import ErasureNote
from ._timestamps import MAX_STAMP, REQUEST_TYPE, Stamp, StampRefused, requestStamp, stampName

__all__ = [
    "MAX_SIZE",
    "MAX_STAMP",
    "REQUEST_TYPE",
    "Bundle",
    "ErasureNote",
    "Stamp",
    "StampRefused",
    "decodeArchive",
    "encodeArchive",
    "requestStamp",
    "stampName",
]
