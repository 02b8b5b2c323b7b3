"""
The authenticators that come with svcbroker. Their code is imported when one of them is chosen.
"""

from svcbroker.authenticators import AuthenticatorPlugin

jwt = AuthenticatorPlugin("jwt", "svcbroker.authenticators.jwt")
mosquitto = AuthenticatorPlugin("mosquitto", "svcbroker.authenticators.mosquitto")
