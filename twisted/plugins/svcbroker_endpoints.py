"""
The endpoints that come with svcbroker.
"""

from svcbroker.net.tls import MutualTLSParser

mtls = MutualTLSParser()
