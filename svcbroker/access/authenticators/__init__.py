"""
The authenticators that C{--auth} adds to the file of accounts.

Nothing here imports one of them: L{AuthenticatorPlugin} does so when its description is read.
"""

from __future__ import annotations

from attrs import frozen
from zope.interface import implementer

from ...interfaces import IAuthenticatorFactory
from ...net.descriptions import ModuleFactory


@implementer(IAuthenticatorFactory)
@frozen
class AuthenticatorPlugin(ModuleFactory):
    """
    A kind of authenticator that is a module, with C{configure} as
    L{IAuthenticatorFactory.configure<svcbroker.interfaces.IAuthenticatorFactory.configure>} says.
    """
