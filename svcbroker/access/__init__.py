"""
Access: the grants of accounts, and the principals that act through the broker.
"""

from ._access import LOGINS, Access, AccountStatus, accessBounds, credentialsOf
from ._accountfile import (
    Account,
    Accounts,
    AccountTable,
    AccountText,
    CannotEdit,
    checkName,
    grantsOf,
    parseAccounts,
    readAccounts,
)
from ._audittrail import AuditTrail
from ._grants import BUILT_IN_ROLES, Grant, Grants, fitsPlaceholder
from ._logins import DEFAULT_COST, LOGIN_THREADS, costOf, hashPassword
from ._principal import ANYBODY, UNLIMITED, Admission, Principal, Usage
