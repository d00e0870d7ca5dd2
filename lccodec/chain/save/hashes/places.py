"""Where arrays lie in the file of values."""

from __future__ import annotations

from collections.abc import Iterable


class Places:
    """Room for new arrays: between those that stay where they are, or behind all of them.

    So the file does not grow with each save of an array whose shape changes, such as a buffer.

    Parameters
    ----------
    taken
        Where those that stay begin and end, in any order.

    Examples
    --------
    >>> places = Places([(0, 10), (30, 40)])
    >>> [places.take(15), places.take(15), places.take(5)]
    [10, 40, 25]
    """

    def __init__(self, taken: Iterable[tuple[int, int]] = ()) -> None:
        self._gaps: list[tuple[int, int]] = []
        self._end = 0
        for start, stop in sorted(taken):
            if start > self._end:
                self._gaps.append((self._end, start))
            self._end = max(self._end, stop)

    def take(self, size: int) -> int:
        """Return where an array of so many bytes begins."""
        for number, (start, stop) in enumerate(self._gaps):
            if stop - start >= size:
                self._gaps[number : number + 1] = [(start + size, stop)] if stop - start > size else []
                return start
        start, self._end = self._end, self._end + size
        return start
