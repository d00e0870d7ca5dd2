"""Write the heaviest files of each structure: ``python fuzz/heavy_files.py FOLDER BYTES``.

`budget.py` runs it, and reads what ``index.json`` in the folder says of each: its name, its file or
directory, its bytes and its kind.
"""

from __future__ import annotations

import io
import json
import os
import struct
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from heaviest import KINDS, blocks, classed, constant, fields, finished, heavy_frames, split
from heavy_foreign import hdf5_files, torch_files, weight_versions

from lccodec.constants import BUNDLE_MAGIC, MAX_EXPANSION, METHOD_PLANES, METHOD_SMOOTH, ROOT_SIZE
from lccodec.container.bundle import BundledFile, BundleIndex, BundleTrailer
from lccodec.container.checkpoint import hashed, root_of, to_bytes
from lccodec.container.manifest import INHERITED, Copy, Manifest, Parent
from lccodec.container.parity import Index, Layout, Member, ends_of

#: The most copies that an array may have.
MADE = (Copy(0, None), Copy(0, KINDS["bfloat16"]))


def checkpoint(frames: Sequence[bytes], arrays: Sequence[int | None], **members: object) -> bytes:
    """Return a checkpoint file of frames, and of arrays by the numbers of their frames, from 1."""
    tree: object = ["l", *range(len(arrays))]
    given = {"step": 1, "parent": None, "policy": None, "metadata": {}, "tree": tree, "scalars": []}
    entries = tuple(hashed(frame)[0] for frame in frames)
    return to_bytes(frames, Manifest(**{**given, **members}, arrays=tuple(arrays), frames=entries))


def checkpoints(size: int) -> Iterator[tuple[str, bytes]]:
    """Yield files of one heavy frame, and files whose manifest is heavy."""
    for heavy in heavy_frames(size - 1024):
        if heavy.arrays == 1:
            yield heavy.name, checkpoint([heavy.data], [1])
    run = next(heavy for heavy in heavy_frames(size // 12) if heavy.arrays > 1)
    yield run.name, checkpoint([run.data], [1] * run.arrays)
    yield "copies", copied(size - 1024)
    small = finished(METHOD_PLANES, KINDS["uint8"], (0,), 10, b"")[0]
    count = size // (len(small) + 40)
    yield "empty arrays", checkpoint([small] * count, range(1, count + 1))
    scalars = {"tree": ["l", *[None] * (size // 8)], "scalars": [0] * (size // 8)}
    yield "scalars", checkpoint([], [], **scalars)
    key = "k" * (size // 2)
    leaves = min((1 << 24) // len(key) - 2, size // 8)
    yield "a long key", checkpoint([], [], tree={key: ["l", *[None] * leaves]}, scalars=[0] * leaves)
    yield "long numbers", checkpoint([], [], tree=["l", *[None] * 14], scalars=[10**4095] * 14)


def copied(size: int) -> bytes:
    """Return a file of one array, and of as many copies of it as may be."""
    kind, count = KINDS["float32"], size * MAX_EXPANSION // 4
    frame, _ = finished(METHOD_PLANES, kind, (count,), 20, blocks(kind, count, 20, constant(0)))
    return checkpoint([frame], [1, *[None] * len(MADE)], copies=MADE)


def copying(size: int) -> Iterator[bytes]:
    """Yield a keyframe of copies, and deltas that make all of them anew; half of the bytes each."""
    root = b""
    for step in range(1, 1000):
        parent = Parent(step - 1, root) if root else None
        how = {"step": step, "parent": parent, "tree": INHERITED, "copies": MADE}
        file = checkpoint([], [0, *[None] * len(MADE)], **how) if root else copied(size // 2 - 1024)
        size -= len(file)
        root = file[-32:]
        yield file
        if size < 0:
            return


def chains(size: int) -> Iterator[tuple[str, list[bytes]]]:
    """Yield chains: half of the bytes are a keyframe, the others small deltas."""
    half = size // 2
    for name, dtype, stream in (
        ("nothing changes", "uint8", constant(0)),
        ("all changes", "uint8", constant(1)),
        ("classed", "uint8", classed(constant(0), 0xFFFF)),
        ("split", "uint8", split(KINDS["uint8"])),
        ("split, planes", "float64", split(KINDS["float64"])),
    ):
        kind = KINDS[dtype]
        count = (half - 1024) * 1024 // kind.size
        body = blocks(kind, count, 20, constant(0))
        frame, out = finished(METHOD_PLANES, kind, (count,), 20, body)
        files = [checkpoint([frame], [1])]
        left = size - len(files[0])
        while left > 0:
            body = blocks(kind, count, 20, stream)
            frame, out = finished(METHOD_PLANES, kind, (count,), 20, body, out)
            parent = Parent(len(files), files[-1][-32:])
            files.append(checkpoint([frame], [1], step=len(files) + 1, parent=parent, tree=INHERITED))
            left -= len(files[-1])
        yield name, files
    yield "fields", list(_fields(half))
    yield "copies made anew", list(copying(size))
    file = copied(size - 2048)
    again = {"step": 2, "parent": Parent(1, file[-32:]), "tree": INHERITED}
    yield "copies twice", [file, checkpoint([], [0] * (1 + len(MADE)), **again)]


def _fields(half: int) -> Iterator[bytes]:
    """Yield a keyframe of zeros, and a delta as large that predicts each of its elements."""
    kind, count = KINDS["float16"], half * 256
    frame, out = finished(METHOD_PLANES, kind, (count,), 20, blocks(kind, count, 20, constant(0)))
    file = checkpoint([frame], [1])
    yield file
    body = fields(kind, (count,), 24, constant(0), 7)
    frame, out = finished(METHOD_SMOOTH, kind, (count,), 24, body, out)
    parent = Parent(1, file[-32:])
    yield checkpoint([frame], [1], step=2, parent=parent, tree=INHERITED)


def bundle(files: Sequence[bytes]) -> bytes:
    """Return a bundle of checkpoints, whose steps are their places from 1 on."""
    members = {step: BundledFile(len(file), file[-ROOT_SIZE:]) for step, file in enumerate(files, 1)}
    index = BundleIndex(members)
    text = index.to_bytes()
    tail = text + BundleTrailer(index.files_length, len(text)).to_bytes()[:-ROOT_SIZE]
    return b"".join([BUNDLE_MAGIC, *files, tail, root_of(BUNDLE_MAGIC, tail)])


def bundles(size: int, chains: Sequence[tuple[str, list[bytes]]]) -> Iterator[tuple[str, bytes]]:
    """Yield bundles of some chains, and one of as many files as have room."""
    for name, files in chains:
        yield f"bundle of {len(files)}, {name}", bundle(files)
    small = [checkpoint([], [], step=step, tree=None, scalars=[0]) for step in range(1, size // 700)]
    yield f"bundle of {len(small)} keyframes", bundle(small)


def parity_chains(size: int) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield chains with hostile parity files, by the paths of their files."""
    sound = checkpoint([], [], tree=None, scalars=[0])
    root = sound[-ROOT_SIZE:]
    for name, layout in (
        ("large blocks", Layout(1 << 18, 1, 64, 64, True, _members(64, 1 << 18, root))),
        ("many rows", Layout(512, size // 32, 1, 1, True, _members(1, size * 16, root))),
        ("128 columns", Layout(512, 1, 64, 64, False, _members(64, 1024, root))),
        ("rows that nothing fills", Layout(512, 2**44, 1, 1, True, _members(1, 2**53 - 1, root))),
    ):
        hashes = layout.blocks + layout.parity * layout.rows
        index = Index(layout, bytes(8 * hashes) if hashes < size // 16 else b"")
        head, end = ends_of(index, 0)
        room = max(size - len(head) - len(end), 0)
        blocks = bytes(min(layout.rows * layout.block, room))
        yield name, {"000000000001.lcc.h5": sound, f".parity/{layout.name(0)}": head + blocks + end}


def _members(count: int, length: int, root: bytes) -> tuple[Member, ...]:
    return tuple(Member(f"{step:012d}.lcc.h5", length, root) for step in range(1, count + 1))


def seals(size: int) -> Iterator[tuple[str, bytes]]:
    """Yield seals of as many files, or tensors of one file, as have room."""
    line = b"a" * 64 + b"  "
    yield "many files", b"".join(line + b"%d\n" % n for n in range(size // 72))
    tensors = b"".join(b'# tensor %s %d %d "%d"\n' % (b"a" * 64, n, n + 1, n) for n in range(size // 90))
    yield "many tensors", b"# lccodec seal 1\n" + line + b"input.npz\n" + tensors


def archives(size: int) -> Iterator[tuple[str, bytes]]:
    """Yield files of other formats."""
    head = np.lib.format.magic(1, 0)
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        for name, length in (("zeros", size * 1000), ("a header", size * 1000)):
            with io.BytesIO() as file:
                with zipfile.ZipFile(file, "w", method) as archive, archive.open("a.npy", "w") as member:
                    text = f"{{'descr':'|u1','fortran_order':False,'shape':({length},)}}".encode()
                    if name == "zeros":
                        member.write(head + struct.pack("<H", len(text)) + text)
                    else:
                        member.write(np.lib.format.magic(2, 0) + struct.pack("<I", length))
                    for _ in range(length // (1 << 20)):
                        member.write(bytes(1 << 20))
                    member.write(bytes(length % (1 << 20)))
                yield f"npz, {name}, method {method}", file.getvalue()
    member = np.lib.format.magic(2, 0) + struct.pack("<I", 1 << 30) + b" " * (size // 4)
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(64):
                archive.writestr(f"{number}.npy", member)
        yield "npz, 64 headers of 1 GiB", file.getvalue()
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive:
            for number in range(size // 250):
                np.lib.format.write_array(archive.open(f"../{number}.npy", "w"), np.zeros(()))
        yield "npz, many members with ..", file.getvalue()
    shape = b"[" + b"9," * (size // 2) + b"9]"
    text = b'{"x":{"dtype":"U8","shape":' + shape + b',"data_offsets":[0,0]}}'
    yield "safetensors, many dimensions", struct.pack("<Q", len(text)) + text
    text = b"{" + b",".join(
        b'"%d":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}' % (n, size // 2, size // 2)
        for n in range(size // 128)
    )
    text += b"}"
    yield "safetensors, one over the other", struct.pack("<Q", len(text)) + text + bytes(size // 2)


def _written(path: Path, parts: dict[str, bytes]) -> int:
    """Write files into a directory, by their paths; return their bytes."""
    for place, data in parts.items():
        (path / place).parent.mkdir(parents=True, exist_ok=True)
        (path / place).write_bytes(data)
    return sum(map(len, parts.values()))


def inputs(size: int, folder: Path) -> Iterator[tuple[str, Path, int, str]]:
    """Yield the name of each input, where it lies, its bytes, and its kind."""
    made = list(chains(size))
    others = [*hdf5_files(size), *torch_files(size)]
    single = [(f"{n}.lcc.h5", name, data, "file") for n, (name, data) in enumerate(checkpoints(size))]
    single += [(f"{n}.lcc", name, data, "bundle") for n, (name, data) in enumerate(bundles(size, made))]
    for n, (name, data) in enumerate(archives(size)):
        single.append((f"{n}.{name.split(',')[0]}", name, data, "foreign"))
    for n, (name, data) in enumerate(others):
        single.append((f"other-{n}.{'h5' if name.startswith('HDF5') else 'pt'}", name, data, "foreign"))
    for file, name, data, kind in single:
        yield name, folder / file, _written(folder, {file: data}), kind
    for name, files in made:
        path = folder / name.replace(" ", "-")
        parts = {f"{step:012}.lcc.h5": data for step, data in enumerate(files, 1)}
        yield f"chain of {len(files)}, {name}", path, _written(path, parts), "chain"
    for name, parts in parity_chains(size):
        path = folder / f"parity-{name.replace(' ', '-')}"
        yield f"parity, {name}", path, _written(path, parts), "protected"
    for number, (name, data) in enumerate(seals(size)):
        path = folder / f"sealed-{number}" / "input.npz"
        nbytes = _written(path.parent, {"input.npz.sha256": data})
        np.savez(path, w=np.zeros(3))
        yield f"seal, {name}", path, nbytes, "sealed"
    for number, (name, parts) in enumerate(weight_versions(size)):
        path = folder / f"weights-{number}"
        yield name, path, _written(path, parts), "versions"
    for name in ("0.lcc.h5", "0.npz", "0.safetensors", "0.h5", "0.pt"):
        path = folder / f"fifo-{name}"
        os.mkfifo(path)
        yield f"a FIFO, {name}", path, 0, "file" if name == "0.lcc.h5" else "foreign"


def main() -> None:
    """Write the files and the index."""
    folder, size = Path(sys.argv[1]), int(sys.argv[2])
    rows = [(name, str(path), nbytes, kind) for name, path, nbytes, kind in inputs(size, folder)]
    (folder / "index.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
