"""The bytes that the HDF5 library writes around a payload and a manifest (LCC-H5-05)."""

import ctypes
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
from h5py import h5a, h5d, h5f, h5fd, h5p, h5s, h5t

#: The attribute of every file (LCC-H5-06).
ABOUT = b"lccodec checkpoint: pip install lccodec; lccodec info FILE"


class _Sparse(io.RawIOBase):
    """A file for h5py to write, of which only what was written takes memory."""

    def __init__(self) -> None:
        self.written: dict[int, bytes] = {}
        self._size = self._position = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def truncate(self, size: int | None = None) -> int:
        self._size = self._position if size is None else size
        return self._size

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        view[:] = self.read_at(self._position, view.nbytes)
        self._position += view.nbytes
        return view.nbytes

    def write(self, data: Any) -> int:
        part = bytes(data)
        self.written[self._position] = part
        self._position += len(part)
        self._size = max(self._size, self._position)
        return len(part)

    def read_at(self, start: int, size: int) -> bytes:
        """Return bytes of the file; what was not written is 0."""
        made = bytearray(size)
        for offset, part in self.written.items():
            for place in range(max(start, offset), min(start + size, offset + len(part))):
                made[place - start] = part[place - offset]
        return bytes(made)


def library() -> ctypes.CDLL | None:
    """Return the HDF5 library that h5py has loaded, which can do more; None if not on Linux."""
    maps = Path("/proc/self/maps")
    found = re.findall(r"/\S*/libhdf5[^/\s]*\.so\S*", maps.read_text()) if maps.exists() else []
    paths = [path for path in found if "_hl" not in Path(path).name]
    return ctypes.CDLL(paths[0]) if paths else None


def _set(function: str, properties: Any, *values: int) -> None:
    call = getattr(library(), function)
    call.argtypes = [ctypes.c_int64, *[ctypes.c_uint] * len(values)]
    if call(properties.id, *values) < 0:
        raise RuntimeError(function)


def written(payload_size: int, manifest_size: int) -> tuple[bytes, int]:
    """Return all bytes that are neither payload nor manifest, and where the file ends."""
    file = _Sparse()
    access, creation = h5p.create(h5p.FILE_ACCESS), h5p.create(h5p.FILE_CREATE)
    access.set_fclose_degree(h5f.CLOSE_STRONG)
    access.set_fileobj_driver(h5fd.fileobj_driver, file)
    access.set_libver_bounds(h5f.LIBVER_V18, h5f.LIBVER_V18)
    creation.set_obj_track_times(False)
    _set("H5Pset_est_link_info", creation, 2, 63)
    root = h5f.create(b"made in memory", h5f.ACC_TRUNC, fcpl=creation, fapl=access)
    datasets = []
    for name, size in ((b"payload", payload_size), (b"manifest", manifest_size)):
        properties = h5p.create(h5p.DATASET_CREATE)
        properties.set_layout(h5d.CONTIGUOUS)
        properties.set_alloc_time(h5d.ALLOC_TIME_LATE)
        properties.set_fill_time(h5d.FILL_TIME_NEVER)
        properties.set_obj_track_times(False)
        _set("H5Pset_dset_no_attrs_hint", properties, 1)
        datasets.append(h5d.create(root, name, h5t.STD_U8LE, h5s.create_simple((size,)), properties))
    kind = h5t.C_S1.copy()
    kind.set_size(len(ABOUT))
    kind.set_strpad(h5t.STR_NULLPAD)
    h5a.create(root, b"about", kind, h5s.create(h5s.SCALAR)).write(np.array(ABOUT))
    offsets = []
    for dataset, size in zip(datasets, (payload_size, manifest_size), strict=True):
        if size:  # the first byte written allocates all
            first, space = h5s.create_simple((1,)), dataset.get_space()
            space.select_hyperslab((0,), (1,))
            dataset.write(first, space, np.zeros(1, np.uint8))
        offsets.append(dataset.get_offset())
    root.close()
    end = offsets[1] + manifest_size
    return file.read_at(0, offsets[1] - payload_size), end
