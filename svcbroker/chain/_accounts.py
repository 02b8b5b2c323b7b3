"""
Accounts: which of a sender's transactions were executed.
"""

from __future__ import annotations

from msgspec import Struct

from ._encoding import U64, Malformed

NONCE_WINDOW = 1024
"""How far behind the highest nonce of its sender a transaction may still be executed."""

_WINDOW_MASK = (1 << NONCE_WINDOW) - 1
_ACCOUNT_SIZE = U64.size + NONCE_WINDOW // 8


class Account(Struct, frozen=True):
    """
    Which of a sender's nonces were executed.

    @ivar highest: the highest one.
    @ivar window: a bit for each of the L{NONCE_WINDOW} nonces from C{highest} (the lowest bit)
        down: whether it was executed.
    """

    highest: int = 0
    window: int = 0

    def accepts(self, nonce: int) -> bool:
        """Whether a transaction of this nonce is new."""
        behind = self.highest - nonce
        if behind < 0:
            return True
        return nonce > 0 and behind < NONCE_WINDOW and not self.window >> behind & 1

    def after(self, nonce: int) -> Account:
        """The account once a transaction of a new nonce was executed."""
        ahead = nonce - self.highest
        if ahead <= 0:
            return Account(self.highest, self.window | 1 << -ahead)
        if ahead >= NONCE_WINDOW:
            return Account(nonce, 1)
        return Account(nonce, self.window << ahead & _WINDOW_MASK | 1)

    def encode(self) -> bytes:
        """Its canonical encoding."""
        return U64.pack(self.highest) + self.window.to_bytes(NONCE_WINDOW // 8, "big")

    @classmethod
    def decode(cls, data: bytes) -> Account:
        """
        Read what L{encode} wrote.

        @raise Malformed: it has another length.
        """
        if len(data) != _ACCOUNT_SIZE:
            raise Malformed(f"an account has {_ACCOUNT_SIZE} bytes, not {len(data)}")
        return cls(int.from_bytes(data[:8], "big"), int.from_bytes(data[8:], "big"))


class AccountDraft:
    """
    An account while a block is being executed.
    """

    __slots__ = ("_highest", "_run", "_window")

    def __init__(self, account: Account) -> None:
        self._highest = account.highest
        self._window = account.window
        # How many nonces follow the window without a gap: a sender's mostly do, and are cheap so.
        self._run = 0

    def spend(self, nonce: int) -> bool:
        """
        Take note that a transaction of this nonce is executed.

        @return: whether it is new; otherwise nothing has changed.
        """
        if nonce == self._highest + 1:
            self._highest = nonce
            self._run += 1
            return True
        account = self.finish()
        if not account.accepts(nonce):
            return False
        after = account.after(nonce)
        self._highest, self._window = after.highest, after.window
        return True

    def finish(self) -> Account:
        """The account as it is now."""
        if self._run:
            run = min(self._run, NONCE_WINDOW)
            self._window = (self._window << run | (1 << run) - 1) & _WINDOW_MASK
            self._run = 0
        return Account(self._highest, self._window)
