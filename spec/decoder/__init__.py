"""The reference decoder of the format, written from ``spec/SPEC.md`` and from nothing else.

The author of its first version had not seen the package lccodec. It has changed with the text
since. It imports nothing of the package, and the package imports nothing of it. Where the two agree
about a file, the text says enough.

Read it beside the text: it has one function for each section, decodes one symbol at a time, and
names at each check the rule that asks for it. So it is plain and slow. It needs the standard
library only, and it is not installed with the package::

    >>> import decoder  # with spec/ on the path
    >>> state = decoder.read_checkpoint("run/000000000010.lcc.h5")
    >>> state = decoder.read_newest("run")  # the exact file's, or the history's
    >>> state = decoder.read_bundle("run.lcc", 10)
    >>> files = decoder.mend("copy")  # a directory of the files of a group and of its parity

An array is returned as an :class:`Array`: the name of its element type, its extents and its bytes.
"""

from .bundles import read_bundle
from .files import Array, read_checkpoint, read_newest
from .frames import decode_frame
from .parity import mend, read_parity
from .streams import Refused

__all__ = [
    "Array",
    "Refused",
    "decode_frame",
    "mend",
    "read_bundle",
    "read_checkpoint",
    "read_newest",
    "read_parity",
]
