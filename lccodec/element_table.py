"""The table of element types (SPEC 5.2).

It is read without NumPy, which takes longer to load than most commands take.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from .errors import DependencyError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, eq=False)
class ElementType:
    """One element type of the format (SPEC 5.2).

    Each type is one object, in `ELEMENT_TYPES`, and is compared by identity: that is fast.
    """

    name: str  # NumPy's name of the type
    code: int  # number of the type in a frame (LCC-FRM-06)
    kind: str  # ``"b"`` bool, ``"i"`` signed, ``"u"`` unsigned, ``"f"`` floating point, ``"c"`` complex
    size: int  # bytes of one component
    mantissa: int = 0  # stored bits of a component's significand; 0 for a type that is not floating point

    @cached_property
    def components(self) -> int:
        """Components of one element: 2 for complex types, 1 for all others."""
        return 2 if self.kind == "c" else 1

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.size * self.components

    @cached_property
    def is_float(self) -> bool:
        """Whether components are IEEE 754 numbers, so that a lossy quantizer can be used."""
        return self.mantissa > 0

    @cached_property
    def bits(self) -> np.dtype[Any]:
        """Unsigned integer type of a component's bit pattern."""
        import numpy as np

        return np.dtype(f"u{self.size}")

    @cached_property
    def work(self) -> np.dtype[Any]:
        """Floating point type that NumPy computes in; bfloat16 is widened to float32."""
        import numpy as np

        return np.dtype("f4") if self.name == "bfloat16" else np.dtype(f"f{self.size}")

    @property
    def native(self) -> np.dtype[Any]:
        """NumPy type of an element; raises ``DependencyError`` for bfloat16 without ml_dtypes."""
        import numpy as np

        if self.name != "bfloat16":
            return np.dtype(self.name)
        try:
            import ml_dtypes
        except ImportError:
            raise DependencyError(
                "a bfloat16 array needs ml_dtypes: pip install 'lccodec[bfloat16]', "
                "or ask for dtype='float32'"
            ) from None
        native: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return native


#: Every element type, in the order of its code (LCC-FRM-06).
ELEMENT_TYPES: Final = (
    ElementType("bool", 0, "b", 1),
    ElementType("int8", 1, "i", 1),
    ElementType("int16", 2, "i", 2),
    ElementType("int32", 3, "i", 4),
    ElementType("int64", 4, "i", 8),
    ElementType("uint8", 5, "u", 1),
    ElementType("uint16", 6, "u", 2),
    ElementType("uint32", 7, "u", 4),
    ElementType("uint64", 8, "u", 8),
    ElementType("float16", 9, "f", 2, 10),
    ElementType("bfloat16", 10, "f", 2, 7),
    ElementType("float32", 11, "f", 4, 23),
    ElementType("float64", 12, "f", 8, 52),
    ElementType("complex64", 13, "c", 4, 23),
    ElementType("complex128", 14, "c", 8, 52),
)
