"""
Sets of validators as the engine has them.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...chain import ChangeRefused, ValidatorChange, ValidatorSet
from ...errors import ParameterInvalid
from ...proofs.cometbft import addressOf


def engineOrder(keys: Iterable[bytes]) -> tuple[bytes, ...]:
    """Public keys in the order in which the engine has validators of equal power."""
    return tuple(sorted(keys, key=addressOf))


def checkGoverned(change: ValidatorChange, chain: bytes, current: ValidatorSet) -> None:
    """
    Make sure that a change of the validators will be executed.

    @param chain: the chain's id.
    @param current: the set before.
    @raise ParameterInvalid: it will not. The text says why.
    """
    try:
        change.check(chain, current)
    except ChangeRefused as error:
        raise ParameterInvalid(f"change: {error}") from error
    if change.following.keys != engineOrder(change.following.keys):
        raise ParameterInvalid("change: its validators are not in the engine's order")
