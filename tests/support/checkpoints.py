"""Checkpoint files of three frames, in memory and written."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lccodec.chain.read.checkpoint import open_path
from lccodec.constants import PAYLOAD_OFFSET
from lccodec.container.checkpoint import CheckpointReader, CheckpointWriter, open_checkpoint, to_bytes
from lccodec.container.manifest import INHERITED, Manifest, Parent
from lccodec.container.piece_table import hashed

FRAMES = (b"first frame", b"2", b"the third frame")
ENTRIES = tuple(hashed(frame)[0] for frame in FRAMES)
KEYFRAME = Manifest(
    step=7,
    parent=None,
    policy="lc-3",
    metadata={"run": "é"},
    tree={"a": 0, "b": ["l", 1, None], "c": ["t", 2, 0]},
    scalars=[{"f": "0.1"}],
    arrays=(1, 2, 3),
    frames=ENTRIES,
)
DELTA = replace(
    KEYFRAME,
    step=8,
    parent=Parent(7, bytes(range(32))),
    tree=INHERITED,
    metadata={},
    arrays=(0, 1, 0),
    frames=ENTRIES[1:2],
)
EMPTY = Manifest(None, None, None, {}, {}, [], (), ())
RUN = replace(KEYFRAME, arrays=(1, 2, 1), frames=ENTRIES[:2])  # two arrays share the first frame
FILE = to_bytes(FRAMES, KEYFRAME)


def listing(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def write(
    path: Path, frames: tuple[bytes, ...] = FRAMES, manifest: Manifest = KEYFRAME, **options: Any
) -> bytes:
    with CheckpointWriter(path, **options) as writer:
        for frame in frames:
            writer.write_frame(frame)
        return writer.commit(manifest)


@dataclass
class Sized:
    """A frame whose length is known, in chunks of some bytes."""

    data: bytes
    chunk: int = 1000
    table_pieces: int = 0

    @property
    def length(self) -> int:
        return len(self.data)

    def chunks(self) -> Iterator[bytes]:
        return (self.data[start : start + self.chunk] for start in range(0, len(self.data), self.chunk))


def write_sized(
    path: Path, frames: tuple[bytes, ...] = FRAMES, manifest: Manifest = KEYFRAME, **options: Any
) -> bytes:
    """As `write`, with the frames written as those whose length is known."""
    with CheckpointWriter(path, **options) as writer:
        writer.write_frames([Sized(frame) for frame in frames], 1)
        return writer.commit(manifest)


def frames_of(manifest: Manifest) -> tuple[bytes, ...]:
    return tuple(FRAMES[ENTRIES.index(entry)] for entry in manifest.frames)


def read_all(reader: CheckpointReader) -> tuple[bytes, ...]:
    with reader:
        return tuple(reader.frame(number) for number in range(len(reader.manifest.frames)))


def unmeasured(path: Path) -> tuple[Manifest, tuple[bytes, ...]]:
    """What a checkpoint stores, without figures, and without roots that depend on figures."""
    with open_checkpoint(path) as reader:
        manifest = reader.manifest
        frames = tuple(bytes(reader.frame(number)[:]) for number in range(len(manifest.frames)))
    parent = manifest.parent and replace(manifest.parent, root=b"")
    return replace(manifest, figures=None, parent=parent), frames


def damage_array(path: Path, name: str) -> None:
    """Change a byte of the frame that an array lies in."""
    with open_path(path) as file:
        link = file.links[-1]
        number = link.frame_of(link.names[name]) or 0
        start = PAYLOAD_OFFSET + sum(frame.length for frame in link.manifest.frames[:number])
    data = bytearray(path.read_bytes())
    data[start + 28] ^= 1
    path.write_bytes(bytes(data))
