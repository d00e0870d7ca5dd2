"""Ways to bring an update to the arrays of an engine, each in three steps.

``publish`` writes files and returns their bytes; ``prepare`` does what can be done while the old
weights are in use; ``commit`` is what the engine waits for. All of them flush what they publish.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np
import zstandard
from safetensors.numpy import load_file, save_file

import lccodec
from lccodec.chain.read.follower import Watch
from lccodec.chain.store.directory import DirectoryStore

from .updates import Update

__all__ = ["Way", "all_ways"]


class Way(ABC):
    """One way, for one update."""

    name: str

    def __init__(self, update: Update, directory: Path) -> None:
        self.update, self.directory = update, directory
        directory.mkdir()
        self.served = {name: array.copy() for name, array in update.old.items()}

    @abstractmethod
    def publish(self) -> int:
        """Write the update; return its bytes."""

    @abstractmethod
    def prepare(self) -> None:
        """Read it, as far as that can be done while the old weights are in use."""

    def go_back(self) -> None:  # noqa: B027 - most ways hold no state
        """Get ready to prepare again."""

    @abstractmethod
    def commit(self) -> None:
        """Change the arrays that are served."""

    def reset(self) -> None:
        """Put the old weights back."""
        for name, array in self.update.old.items():
            np.copyto(self.served[name], array)

    def check(self) -> None:
        """Stop with an error unless the arrays are the new ones, bit for bit."""
        for name, array in self.update.new.items():
            if self.served[name].tobytes() != array.tobytes():
                raise SystemExit(f"{self.name}: {name} is wrong")


class Lccodec(Way):
    """A delta of a lossless chain, and a follower."""

    name = "lccodec"
    workers = 1

    def __init__(self, update: Update, directory: Path) -> None:
        super().__init__(update, directory)
        self._chain = lccodec.Chain(directory / "run", "lossless", newest="history", keyframe_every=10**6)
        self._chain.save(0, update.old)
        self._chain.save(1, update.new)
        self._watch = Watch(DirectoryStore(directory / "run"), 0, None, exact=False, members=self.workers)
        self._latest = 1
        self._take(0)

    def publish(self) -> int:
        self._latest += 1  # back and forth: each delta is the same change
        state = self.update.old if self._latest % 2 == 0 else self.update.new
        return self._chain.save(self._latest, state)

    def prepare(self) -> None:
        self._update = self._take(self._step + 1)

    def go_back(self) -> None:
        if self._step % 2:  # the new weights
            while self._latest < self._step + 2:
                self.publish()
            self._take(self._step + 1)

    def _take(self, step: int) -> lccodec.Update:
        """Go to a step, as a follower does before it hands out the update."""
        self._watch.pinned = self._step = step
        way = self._watch.next()
        if way is None or way.update is None:
            raise SystemExit(f"lccodec: step {step} cannot be read")
        self._watch.commit(way)
        return way.update

    def commit(self) -> None:
        self._update.apply_to(self.served)


class TwoWorkers(Lccodec):
    """The same, prepared by two processes."""

    name = "lccodec, 2 workers"
    workers = 2


class Xor(Way):
    """Exclusive or of the bytes and zstd -1, as slime writes it; the engine adds it in place."""

    name = "XOR + zstd -1"

    def publish(self) -> int:
        writer = zstandard.ZstdCompressor(level=1)
        with (self.directory / "delta").open("wb") as file:
            for name, new in self.update.new.items():
                difference = np.bitwise_xor(_bytes(self.update.old[name]), _bytes(new))
                if difference.any():
                    data = writer.compress(difference.data)
                    file.write(name.encode() + b"\n%d\n" % len(data) + data)
            _flush(file)
            return file.tell()

    def prepare(self) -> None:
        reader = zstandard.ZstdDecompressor()
        self.differences = {n: np.frombuffer(reader.decompress(d), "u1") for n, d in _parts(self.directory)}

    def commit(self) -> None:
        for name, difference in self.differences.items():
            target = _bytes(self.served[name])
            np.bitwise_xor(target, difference, out=target)


class Overwrite(Way):
    """Places and new values of the bytes that differ, and zstd -1, as slime writes it."""

    name = "overwrite + zstd -1"

    def publish(self) -> int:
        writer = zstandard.ZstdCompressor(level=1)
        with (self.directory / "delta").open("wb") as file:
            for name, array in self.update.new.items():
                new = _bytes(array)
                places = np.flatnonzero(_bytes(self.update.old[name]) != new).astype("<u4")
                if places.size:
                    plain = np.uint32(places.size).tobytes() + places.tobytes() + new[places].tobytes()
                    data = writer.compress(plain)
                    file.write(name.encode() + b"\n%d\n" % len(data) + data)
            _flush(file)
            return file.tell()

    def prepare(self) -> None:
        reader, self._found = zstandard.ZstdDecompressor(), {}
        for name, data in _parts(self.directory):
            plain = np.frombuffer(reader.decompress(data), "u1")
            count = int(plain[:4].view("<u4")[0])
            self._found[name] = plain[4 : 4 + 4 * count].view("<u4"), plain[4 + 4 * count :]

    def commit(self) -> None:
        for name, (places, values) in self._found.items():
            _bytes(self.served[name])[places] = values


class Full(Way):
    """All bytes in one file, read and copied."""

    name = "full copies"

    def publish(self) -> int:
        with (self.directory / "full").open("wb") as file:
            for array in self.update.new.values():
                file.write(array.data)
            _flush(file)
            return file.tell()

    def prepare(self) -> None:
        self._data = np.fromfile(self.directory / "full", "u1")

    def commit(self) -> None:
        start = 0
        for target in map(_bytes, self.served.values()):
            np.copyto(target, self._data[start : start + target.size])
            start += target.size


class Safetensors(Way):
    """``save_file`` and ``load_file`` of safetensors, and a copy."""

    name = "safetensors"

    def publish(self) -> int:
        path = self.directory / "model.safetensors"
        save_file({name: _bytes(array) for name, array in self.update.new.items()}, path)
        with path.open("r+b") as file:
            os.fsync(file.fileno())
        return path.stat().st_size

    def prepare(self) -> None:
        self._tensors = load_file(self.directory / "model.safetensors")

    def commit(self) -> None:
        for name, tensor in self._tensors.items():
            np.copyto(_bytes(self.served[name]), tensor)


def all_ways(update: Update, directory: Path) -> list[Way]:
    """Return every way, each with a folder of its own."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    ways: tuple[type[Way], ...] = (Lccodec, TwoWorkers, Xor, Overwrite, Full, Safetensors)
    return [way(update, directory / str(number)) for number, way in enumerate(ways)]


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view("u1")


def _flush(file: object) -> None:
    file.flush()  # type: ignore[attr-defined]
    os.fsync(file.fileno())  # type: ignore[attr-defined]


def _parts(directory: Path) -> list[tuple[str, bytes]]:
    found, data = [], (directory / "delta").read_bytes()
    start = 0
    while start < len(data):
        end = data.index(b"\n", start)
        stop = data.index(b"\n", end + 1)
        size = int(data[end + 1 : stop])
        found.append((data[start:end].decode(), data[stop + 1 : stop + 1 + size]))
        start = stop + 1 + size
    return found
