"""
Who may do what: the grants of accounts, and the principals that act through the broker.
"""

from ._access import Access, Admission, credentialsOf
from ._grants import BUILT_IN_ROLES, EVERYTHING, Grants
from ._principal import ANYBODY, Principal
from ._usage import Usage

__all__ = [
    "ANYBODY",
    "BUILT_IN_ROLES",
    "EVERYTHING",
    "Access",
    "Admission",
    "Grants",
    "Principal",
    "Usage",
    "credentialsOf",
]
