"""
Pages of long lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from attrs import frozen

T = TypeVar("T")


@frozen(kw_only=True)
class Page(Generic[T]):
    """
    A piece of a list.

    @ivar total: how many items the whole list has, after filters.
    @ivar items: the piece; empty beyond the list's end.
    """

    total: int
    items: Sequence[T]
