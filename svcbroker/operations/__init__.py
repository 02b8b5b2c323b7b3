"""
The interface, declared once.

Each operation and each admin query is one L{Operation}: its name, its parameters, what it
answers and how it can fail. REST, JSON-RPC, the admin queries, the operator calls and the OpenAPI
document are all made from these declarations. Nothing here knows HTTP.
"""

from ._binding import bindBatch, bindJSON, bindParams, bindText
from ._declarations import Operation
from ._failures import Incidents
from ._operations import COMMON_ERRORS
from ._operator import OPERATOR_CALLS
from ._parameters import ExtensionsKind, Kind, Parameter
from ._peeranswers import AnswerInvalid, readIdentity, readSubscriptions
from ._queries import QUERIES
from ._records import Envelope, ErrorRecord
from ._results import EVENT, Result
from ._subscribing import OPERATIONS

__all__ = [
    "COMMON_ERRORS",
    "EVENT",
    "OPERATIONS",
    "OPERATOR_CALLS",
    "QUERIES",
    "AnswerInvalid",
    "Envelope",
    "ErrorRecord",
    "ExtensionsKind",
    "Incidents",
    "Kind",
    "Operation",
    "Parameter",
    "Result",
    "bindBatch",
    "bindJSON",
    "bindParams",
    "bindText",
    "readIdentity",
    "readSubscriptions",
]
