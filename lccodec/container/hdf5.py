"""The HDF5 part of a checkpoint file: the bytes around the payload and the manifest (SPEC 8).

The HDF5 library writes the metadata of a file of given sizes into memory, and no stored byte ever
enters it. Reading a checkpoint does not need this module, the only one that imports h5py.

The file has the root group and two datasets of bytes, ``payload`` and then ``manifest``
(LCC-H5-02). Its metadata depend only on the two sizes (LCC-H5-05). So they can be written before
the data exist, and written again to compare them.
"""

from __future__ import annotations

import functools
import io
from typing import Any

import h5py
from h5py import h5d, h5p, h5s, h5t

from ..constants import MANIFEST_DATASET, PAYLOAD_DATASET, PAYLOAD_OFFSET, SKELETON_SIZE
from ..errors import ArgumentError, DependencyError


@functools.lru_cache(maxsize=16)
def skeleton(payload_size: int, manifest_size: int) -> tuple[bytes, bytes]:
    """Let the HDF5 library write the metadata of a checkpoint file.

    Returns all bytes before the payload, and the bytes between it and the manifest, which ends the
    HDF5 file.

    Sizes are in bytes. An empty payload is a dataset of no elements, which has no address in HDF5.
    Everything else keeps its place (LCC-H5-04).

    Raises
    ------
    ArgumentError
        If a size is out of range.
    DependencyError
        If the HDF5 library lays the file out in another way than LCC-H5-05 says.

    Examples
    --------
    >>> head, middle = skeleton(payload_size=10**12, manifest_size=500)
    >>> len(head), len(middle)
    (1072, 600)
    """
    if not (0 <= payload_size < 1 << 62 and 0 < manifest_size < 1 << 62):
        raise ArgumentError(f"sizes {payload_size} and {manifest_size} cannot be stored")
    file = _MetadataFile(payload_size)
    try:
        with h5py.File(file, "w", libver="earliest", track_order=False) as root:
            payload_offset = _create(root, PAYLOAD_DATASET, payload_size)
            manifest_offset = _create(root, MANIFEST_DATASET, manifest_size)
    except Exception as error:
        # The file object's own error says more than the one that h5py makes of it.
        raise _layout_error(str(file.error or error)) from (file.error or error)
    if file.error is not None:
        raise _layout_error(str(file.error)) from file.error
    found = (payload_offset, manifest_offset, file.size)
    end = payload_size + SKELETON_SIZE
    if found != (PAYLOAD_OFFSET if payload_size else None, end, end + manifest_size):
        raise _layout_error(f"payload offset, manifest offset and size are {found}")
    return bytes(file.head), bytes(file.middle)


def _create(root: h5py.File, name: str, size: int) -> int | None:
    """Create one dataset in a form that all library versions write alike; return its offset."""
    properties = h5p.create(h5p.DATASET_CREATE)
    properties.set_layout(h5d.CONTIGUOUS)
    properties.set_alloc_time(h5d.ALLOC_TIME_EARLY)  # datasets lie in the order of their creation
    properties.set_fill_time(h5d.FILL_TIME_NEVER)  # the library must not write the data
    properties.set_obj_track_times(False)  # times would make the bytes differ between runs
    space = h5s.create_simple((size,))
    offset: int | None = h5d.create(root.id, name.encode(), h5t.STD_U8LE, space, properties).get_offset()
    return offset


def _layout_error(found: str) -> DependencyError:
    return DependencyError(
        f"HDF5 {h5py.version.hdf5_version} (h5py {h5py.version.version}) lays a file out in another way than "
        f"rule LCC-H5-05 says; {found}"
    )


class _MetadataFile(io.RawIOBase):
    """A file of any size for h5py to write, which holds the metadata and has no room for data.

    h5py may hide what a file object raises. `error` keeps the first exception, and every write
    after it fails too.
    """

    def __init__(self, payload_size: int) -> None:
        self.head = bytearray(PAYLOAD_OFFSET)
        self.middle = bytearray(SKELETON_SIZE - PAYLOAD_OFFSET)
        self.size = 0
        self.error: OSError | None = None
        self._parts = ((0, self.head), (PAYLOAD_OFFSET + payload_size, self.middle))
        self._position = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self.size)[whence]
        return self._position

    def truncate(self, size: int | None = None) -> int:
        self.size = self._position if size is None else size
        return self.size

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        view[:] = self._part(view.nbytes)
        return view.nbytes

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._part(view.nbytes)[:] = view
        self.size = max(self.size, self._position)
        return view.nbytes

    def _part(self, size: int) -> memoryview:
        """Return the memory of the next `size` bytes, and move on behind them."""
        for offset, part in self._parts:
            start = self._position - offset
            if 0 <= start <= len(part) - size and self.error is None:
                self._position += size
                return memoryview(part)[start : start + size]
        self.error = self.error or OSError(f"it puts {size} bytes at offset {self._position}")
        raise self.error
