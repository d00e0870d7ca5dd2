"""From a place to the store there: a directory, a bundle, or a prefix of a bucket."""

from __future__ import annotations

from pathlib import Path

from ...container.bundle import is_bundle
from ...container.system import Address, Place
from .bundle import BundleStore
from .directory import DirectoryStore
from .store import Store, WritableStore


def open_store(place: Place) -> Store:
    """Return the store of a chain: a directory, a bundle, or a prefix of a bucket."""
    if isinstance(place, Address) or place.is_dir():
        return writable_store(place)
    return BundleStore(place)


def writable_store(place: Place, seconds: float | None = None) -> WritableStore:
    """Return the store of a chain that can be saved to. It need not exist yet.

    Parameters
    ----------
    seconds
        How long a store that does not answer is asked again; by default as long as a save waits.

    Raises
    ------
    DependencyError, ArgumentError
        If there can be no such store, or a package is missing.
    """
    if isinstance(place, Path):
        return DirectoryStore(place)
    from .bucket.backend import Patience
    from .bucket.store import connect

    return connect(place, None if seconds is None else Patience(reading=seconds, writing=seconds))


def is_folder(place: Place) -> bool:
    """Return whether a place is where a chain may be: a directory or an address, and no file."""
    return isinstance(place, Address) or place.is_dir()


def is_chain(place: Place) -> bool:
    """Return whether a place may have many steps: a directory, an address or a bundle."""
    return isinstance(place, Address) or place.is_dir() or is_bundle(place)
