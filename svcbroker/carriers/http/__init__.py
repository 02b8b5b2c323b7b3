"""
The HTTP carrier: REST, JSON-RPC, the admin queries, the operator calls, health and the
OpenAPI document.

C{rest}, C{jsonrpc}, C{admin}, C{operator}, C{health} and C{openapi} are functions from bytes to
bytes and know no request; C{resource} is the Klein application over them; C{site}, C{channel}
and C{request} hold connections and their bounds. C{door} answers the most frequent calls without
all of these.
"""

from .resource import Route
from .settings import HttpSettings
from .site import BrokerSite, makeSite

__all__ = ["BrokerSite", "HttpSettings", "Route", "makeSite"]
