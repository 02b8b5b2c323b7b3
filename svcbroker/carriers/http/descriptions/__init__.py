"""
Descriptions of the interface for programs and for readers, made from the declarations.
"""

from .openrpc import withDiscovery
from .paths import descriptionRoutes

__all__ = ["descriptionRoutes", "withDiscovery"]
