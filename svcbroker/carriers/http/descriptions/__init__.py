"""
Descriptions of the interface for programs and for readers, made from the declarations.
"""

from .declared import ServedPath
from .openrpc import withDiscovery
from .paths import descriptionRoutes

__all__ = ["ServedPath", "descriptionRoutes", "withDiscovery"]
