"""Numbers and element types of the file format, each under the rule that fixes it.

The rules are those of ``spec/SPEC.md``. ``spec/tables`` holds the same numbers; a test compares the
two. All is read without NumPy, which takes longer to load than most commands take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .errors import DependencyError
from .parallel import cached_property

if TYPE_CHECKING:
    import numpy as np


# LCC-VER-01: major.minor of the newest format that this package writes and reads.
FORMAT_MAJOR: Final = 1
FORMAT_MINOR: Final = 1  # LCC-VER-01: of checkpoint files
INDEX_MINOR: Final = 0  # of bundles and parity files: version 1.0 has all that they hold

# --- frame (SPEC section 6) ---------------------------------------------------------------------

FRAME_MAGIC: Final = b"LC"  # LCC-FRM-01
METHOD_RAW: Final = 0  # LCC-FRM-03
METHOD_PLANES: Final = 1
METHOD_CODEBOOK: Final = 2
METHOD_SMOOTH: Final = 3
FLAG_REFERENCE: Final = 0x01  # LCC-FRM-04: the frame is decoded against a reference
FLAG_RUN: Final = 0x02  # LCC-FRM-11: several arrays laid end to end
FLAG_ORDERED: Final = 0x04  # LCC-FRM-12: representatives are steps between neighbouring numbers
MAX_DIMENSIONS: Final = 32  # LCC-FRM-05: NumPy 1.x has no more
MAX_ELEMENTS: Final = 1 << 40  # LCC-LIM-01: keeps every product of sizes inside a signed 64-bit integer
MIN_BLOCK_LOG2: Final = 10  # LCC-LIM-02: a block costs as much time as its first thousand components
MAX_BLOCK_LOG2: Final = 22  # LCC-LIM-02: bounds the memory of a decoder besides its output
MIN_SMOOTH_BLOCK_LOG2: Final = 16  # LCC-LIM-02: a block has dozens of passes
MAX_SMOOTH_BLOCK_LOG2: Final = 24  # LCC-LIM-02: fields are predicted best in one block
MAX_RUN_COMPONENTS: Final = 1 << 22  # LCC-LIM-09: a run is decoded whole
MAX_EXPANSION: Final = 1 << 10  # LCC-LIM-03: decoded bytes per frame byte without a reference: no bombs
MAX_SMOOTH_COMPONENTS: Final = 1 << 8  # LCC-LIM-12: per frame byte: each takes time
MAX_NUMBER_BITS: Final = 53  # LCC-SMO-07: binary64 has all integers below it

# --- streams and Huffman codes (SPEC section 7) ---------------------------------------------------

STREAM_CONSTANT: Final = 0  # LCC-STR-01
STREAM_RAW: Final = 1
STREAM_HUFFMAN: Final = 2
STREAM_SPARSE: Final = 3
STREAM_PACKED: Final = 4
STREAM_CLASSED: Final = 5
STREAM_SPLIT: Final = 6  # since version 1.1
MAX_SIDE: Final = (1 << 16) - 1  # LCC-STR-07: rows or columns; a reader has tables of both for each class
MAX_LEVEL: Final = 15  # LCC-STR-07: a reader has a table of columns for each level
MAX_CLASSES: Final = 16  # LCC-STR-07
MAX_PARTS: Final = 3  # LCC-STR-08: a reader makes a pass over the reference for each
MAX_STREAM_PLACES: Final = 1 << 8  # LCC-LIM-14: of symbols, per byte of their stream: each takes time
MAX_SPLIT_SYMBOLS: Final = 1 << 12  # LCC-LIM-14: per byte of a split stream: the passes take time
MAX_STREAM_DEPTH: Final = 4  # LCC-STR-03: streams inside streams; bounds the recursion
MAX_CODE_BITS: Final = 15  # LCC-HUF-01
MAX_LANE_SYMBOLS: Final = 1 << 11  # LCC-LAN-02: a lane is decoded symbol by symbol, which is slow

# --- checkpoint file (SPEC section 8) -------------------------------------------------------------

TRAILER_MAGIC: Final = b"LCCODEC\x1a"  # LCC-TRL-01
TRAILER_SIZE: Final = 88  # LCC-TRL-02
ROOT_SIZE: Final = 32  # LCC-TRL-05: SHA-256
DIGEST_SIZE: Final = 16  # LCC-MAN-08: bytes kept of the SHA-256 of a frame
MANIFEST_DATASET: Final = "manifest"  # LCC-H5-02
PAYLOAD_DATASET: Final = "payload"  # LCC-H5-02
PAYLOAD_OFFSET: Final = 445  # LCC-H5-05: bytes before the payload
EQUAL_COPY: Final = 255  # LCC-CPY-01: the code of a copy that has the type and the bits of its source
RAW_BLOCK_LOG2: Final = 16  # LCC-PCS-03: components that count as a block of a raw frame
PIECE_ENTRY_SIZE: Final = 28  # LCC-PCS-01: bytes of the entry of a piece
MIN_PIECE_BYTES: Final = 1 << 10  # LCC-LIM-13: of a frame, for each piece but three
MAX_MANIFEST_BYTES: Final = 1 << 26  # LCC-LIM-04: a hostile length must not be allocated
MAX_NESTING: Final = 64  # LCC-LIM-05: recursive readers must not run out of stack
MAX_ARRAYS: Final = 1 << 20  # LCC-LIM-06
MAX_INTEGER_DIGITS: Final = 4096  # LCC-LIM-07: parsing takes time quadratic in the digits
MAX_NAME_CHARACTERS: Final = 1 << 24  # LCC-LIM-08: of all leaves; a key is in the name of each leaf below it
MAX_INTERPOLATED: Final = 16  # LCC-LIM-10: each may have to wait in memory for those that need it
MAX_WEIGHT: Final = 255  # LCC-INT-01: of the later parent, in 256ths
MAX_STEP: Final = (1 << 53) - 1  # LCC-MAN-02: exact in every JSON reader

# --- chain directory (SPEC section 9) -------------------------------------------------------------

CHECKPOINT_SUFFIX: Final = ".lcc.h5"  # LCC-CHN-01
TEMPORARY_PREFIX: Final = ".tmp-"  # LCC-CHN-05
EXACT_NAME: Final = "exact.lcc.h5"  # LCC-EXA-01
WRITER_NAME: Final = ".tmp-writer"  # LCC-CHN-11
PIN_SUFFIX: Final = ".pin"  # LCC-CHN-07
ROLLED_BACK_NAME: Final = ".rolled-back"  # LCC-CHN-08
BUNDLE_MAGIC: Final = b"LCCBNDL\x1a"  # LCC-BUN-01
BUNDLE_TRAILER_SIZE: Final = 64  # LCC-BUN-02

# --- parity files (SPEC section 9) ---------------------------------------------------------------

PARITY_FOLDER: Final = ".parity"  # LCC-PAR-01
PARITY_SUFFIX: Final = ".lcc.par"  # LCC-PAR-01
PARITY_MAGIC: Final = b"LCCPRTY\x1a"  # LCC-PAR-02
PARITY_HEAD_SIZE: Final = 64  # LCC-PAR-02
MAX_GROUP_FILES: Final = 64  # LCC-LIM-11: all may be open at a time
MAX_DATA_COLUMNS: Final = 128  # LCC-LIM-11: a row of blocks must fit into memory
MAX_PARITY_COLUMNS: Final = 64  # LCC-LIM-11
MIN_PARITY_BLOCK: Final = 1 << 9  # LCC-PAR-03: bytes; a sector of a disk
MAX_PARITY_BLOCK: Final = 1 << 18  # LCC-LIM-11: bytes
BLOCK_HASH_SIZE: Final = 8  # LCC-PAR-04: bytes kept of the SHA-256 of a block


# --- element types (SPEC 5.2) ---------------------------------------------------------------------


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
