"""
C{twistd svcbroker}.
"""

from twisted.application.service import ServiceMaker

svcbroker = ServiceMaker(
    "svcbroker",
    "svcbroker.tap",
    "A publish/subscribe event broker that stores events on a blockchain.",
    "svcbroker",
)
