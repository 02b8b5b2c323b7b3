"""
Who may do what: the grants of accounts, and the principals that act through the broker.
"""

from ._access import LOGINS, Access
from ._accountfile import (
    Account,
    AccountTable,
    checkName,
    grantsOf,
    parseAccounts,
    readAccounts,
)
from ._accounts import Accounts
from ._accounttext import AccountText, CannotEdit
from ._audit import AuditTrail
from ._credentials import credentialsOf
from ._grants import BUILT_IN_ROLES, EVERYTHING, Grant, Grants, fitsPlaceholder
from ._logins import LOGIN_THREADS, LoginLimits
from ._passwords import DEFAULT_COST, costOf, hashPassword
from ._principal import ANYBODY, Admission, Principal
from ._status import COUNTED, AccountStatus
from ._usage import UNLIMITED, Usage

__all__ = [
    "ANYBODY",
    "BUILT_IN_ROLES",
    "COUNTED",
    "DEFAULT_COST",
    "EVERYTHING",
    "LOGINS",
    "LOGIN_THREADS",
    "UNLIMITED",
    "Access",
    "Account",
    "AccountStatus",
    "AccountTable",
    "AccountText",
    "Accounts",
    "Admission",
    "AuditTrail",
    "CannotEdit",
    "Grant",
    "Grants",
    "LoginLimits",
    "Principal",
    "Usage",
    "checkName",
    "costOf",
    "credentialsOf",
    "fitsPlaceholder",
    "grantsOf",
    "hashPassword",
    "parseAccounts",
    "readAccounts",
]
