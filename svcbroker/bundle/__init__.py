"""
Evidence bundles: the proofs of some events, with a page that verifies them in a browser, in one
file that can be handed to somebody.
"""

from ._archive import MAX_SIZE, decodeArchive, encodeArchive
from ._bundle import POLICY, PROOFS, STAMP, Bundle

__all__ = ["MAX_SIZE", "POLICY", "PROOFS", "STAMP", "Bundle", "decodeArchive", "encodeArchive"]
