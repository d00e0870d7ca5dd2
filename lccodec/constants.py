"""Numbers of the file format, each under the rule of ``spec/SPEC.md`` that fixes it.

``spec/tables/constants.json`` holds the same numbers; a test compares the two.
"""

from __future__ import annotations

from typing import Final

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
