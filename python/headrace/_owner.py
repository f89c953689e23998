"""What owns a source or a process."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn, SupportsIndex


class Owner:
    """Can't be copied: a copy would close, or kill, what the other one reads."""

    def __reduce_ex__(self, _protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"cannot copy or pickle '{type(self).__name__}' object")
