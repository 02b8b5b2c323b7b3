"""
The HTTP carrier: REST, JSON-RPC, the admin queries, the operator calls, health and the OpenAPI
document.

C{rest}, C{jsonrpc} and C{operator} make endpoints of the declared operations; C{routes} is the
table of all endpoints and other routes. C{connection} holds connections and their bounds, on
twisted.web and Klein. C{fastpath} answers plain requests for the same endpoints without these two;
C{plain} is its half that knows no transport.
"""

from .connection import BrokerSite
from .logins import LogIns
from .routes import Route
