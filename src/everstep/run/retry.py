"""When a failed step is tried again."""

from __future__ import annotations

from dataclasses import dataclass

from everstep.errors import JournalError, RecordedError
from everstep.run.given import LONGEST


@dataclass(frozen=True, slots=True)
class Retry:
    """Try a failed step again: up to `attempts` times in all, `backoff` seconds apart, then `factor` times that.

    `on` are the exceptions that are worth it.
    """

    attempts: int = 3
    backoff: float = 1.0
    factor: float = 2.0
    longest: float = 60.0
    on: tuple[type[Exception], ...] = (Exception,)

    def __post_init__(self) -> None:
        for name in ("attempts", "backoff", "factor", "longest"):
            given = getattr(self, name)
            if isinstance(given, bool) or not isinstance(given, int if name == "attempts" else int | float):
                raise TypeError(f"{name}={given!r:.60}: give a {'whole ' if name == 'attempts' else ''}number")
        kinds = self.on if isinstance(self.on, tuple) else (self.on,)
        if not all(isinstance(each, type) and issubclass(each, BaseException) for each in kinds):
            raise TypeError(f"on={self.on!r:.60}: give exceptions, as in on=(ConnectionError, TimeoutError)")
        waits = 0 <= self.backoff <= LONGEST and 0 <= self.longest <= LONGEST
        if self.attempts < 1 or not waits or not 1 <= self.factor <= LONGEST:
            raise ValueError(
                f"{self} makes no sense: attempts from 1, backoff and longest from 0, factor from 1; and none of the "
                f"last three above {LONGEST:,}"
            )

    def applies(self, error: BaseException) -> bool:
        """Whether this failure is worth another attempt."""
        return isinstance(error, self.on) and (not isinstance(error, JournalError) or isinstance(error, RecordedError))

    def delay(self, attempt: int) -> float:
        """Seconds to wait after the given attempt failed."""
        try:
            return min(float(self.longest), self.backoff * float(self.factor) ** (attempt - 1))
        except OverflowError:  # there have been many
            return float(self.longest) if self.backoff else 0.0


ONCE = Retry(attempts=1)
