"""A bound on what is derived from a field: a user's check, and finer bounds until it holds.

A field is coded and decoded for each try. What is stored then is what was checked: so the frame has
no reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from ..constants import ElementType
from ..element_types import Array, from_components
from ..errors import ArgumentError
from ..quantizers.base import Guarantee, Lossless, Partition, Quantizer
from ..quantizers.registry import register
from ..quantizers.residual import Residual
from ..quantizers.smooth import Smooth
from .decode import decode
from .encode import encode

#: What is told of the two arrays: the decoded one first, then the original.
Check = Callable[[Any, Any], bool]

_FINER: Final = 1 / 4  # the bound of a try, over that of the one before
_TRIES: Final = 8


@register
@dataclass(frozen=True)
class Checked(Quantizer):
    """Codes a field with the largest bound at which a check of the user holds.

    The bound of `then` is tried first, then a quarter of it, and so on, eight times. If the check
    never holds, the array is stored exactly: `Chain.plan` says so. What was checked is what will be
    decoded, so an array of a chain is stored without its parent, and in a frame of its own.

    A chain does not record the check: pass the policy again when a run resumes. Workers do not have
    it, so a thread of the program saves in the background, and a warning says so. Where the check
    is not at hand, the array is exact.

    It is for arrays of real floats (float16, bfloat16, float32, float64) of any shape. Others are
    exact.

    Parameters
    ----------
    then
        The bound to begin with, and what else must hold.
    check
        A function of the decoded array and of the original, both of the shape and type of the
        original. It returns whether what is derived from the decoded one is right. It must not
        change them.

    Raises
    ------
    ArgumentError
        If `then` is not a `Smooth`, or the check not a function.

    Examples
    --------
    >>> import numpy as np, lccodec
    >>> x = np.linspace(0, 6, 100)
    >>> field = np.sin(x)[:, None] * np.cos(x)
    >>> def same_energy(decoded, original):
    ...     return abs((decoded**2).sum() - (original**2).sum()) < 1e-5 * (original**2).sum()
    >>> coarse = lccodec.Smooth(0.05)
    >>> for quantizer in (coarse, lccodec.Checked(coarse, same_energy)):
    ...     decoded = lccodec.decode(lccodec.encode(field, quantizer))
    ...     print(bool(same_energy(decoded, field)))
    False
    True
    """

    then: Smooth
    check: Check | None = field(default=None, compare=False, repr=False)

    in_keyframes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.then, Smooth):
            raise ArgumentError(f"Checked: then must be a Smooth; got {self.then!r}")
        if self.check is not None and not callable(self.check):
            raise ArgumentError(f"Checked: check must be a function of two arrays; got {self.check!r}")

    @property
    def guarantee(self) -> Guarantee:
        """That of `then`, and that the check holds."""
        found = self.then.guarantee
        return replace(found, further=(*found.further, "the check holds"))

    def with_fills(
        self, fills: tuple[float, ...], minimum: float | None = None, maximum: float | None = None
    ) -> Checked:
        """Return the quantizer whose `then` keeps fill values exact, and the limits."""
        return replace(self, then=self.then.with_fills(fills, minimum, maximum))

    def shares_frames(self, size: int) -> bool:  # noqa: ARG002
        """Return False: in a frame with others an array would not decode to what was checked."""
        return False

    def resolve(self, bits: Array, shape: tuple[int, ...], kind: ElementType) -> tuple[Quantizer, str]:
        """Return a `Smooth` whose decoded array passes the check; or `Lossless`."""
        if self.check is None:
            return Lossless(), "no check"
        coder, _ = self.then.resolve(bits, shape, kind)
        failed = Lossless(), "the check does not hold"
        if not isinstance(coder, Smooth) or kind.kind != "f" or not bits.size:
            return failed
        if (plan := coder.field(bits, kind)) is None:
            return failed
        array, bound = from_components(bits.copy(), kind, shape, None), plan.bound
        for _ in range(_TRIES):
            found = replace(coder, max_error=bound, relative_error=None, absolute=True)
            if self.check(decode(encode(array, found)), array):
                return found, "the check holds"
            bound *= _FINER
        return failed

    def fit_one(self, residual: Residual) -> Partition | None:  # noqa: ARG002
        """Return ``None``: what `resolve` has found no bound for is exact."""
        return None
