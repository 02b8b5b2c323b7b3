"""
The authenticators that come with svcbroker. Their code is imported when one of them is chosen.
"""

from svcbroker.access.authenticators import AuthenticatorPlugin

jwt = AuthenticatorPlugin("jwt", "svcbroker.access.authenticators.jwt")
mosquitto = AuthenticatorPlugin("mosquitto", "svcbroker.access.authenticators.mosquitto")
