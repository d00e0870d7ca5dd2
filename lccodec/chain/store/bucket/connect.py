"""From an address to the store behind it, and what to install for it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from ....container.disk.address import Address
from ....container.disk.temporary import clear_abandoned
from ....errors import ArgumentError, DependencyError
from .backend import Backend
from .fsspec import FsspecBackend
from .obstore import ObstoreBackend
from .patience import Patience, PatientBackend
from .store import BucketStore
from .web import WebBackend

_OBSTORE_SCHEMES: Final = frozenset(("s3", "s3a", "gs", "az", "azure", "abfs", "abfss"))
_HELP: Final = "an address needs the extra remote: pip install 'lccodec[remote]'"


def connect(address: Address, patience: Patience | None = None) -> BucketStore:
    """Return the chain at an address. Nothing is requested yet.

    What killed saves to buckets have left in the system's folder for temporaries is removed.

    Raises
    ------
    DependencyError
        If a package is missing; the message has the command that installs it.
    ArgumentError
        If there is no store of that kind.
    """
    backend: Backend
    if address.scheme in _OBSTORE_SCHEMES:
        _need("obstore", address)
        backend = ObstoreBackend(address)
    elif address.scheme == "file":
        raise ArgumentError(f"{address}: give a local directory as a path, without file://")
    else:
        _need("fsspec", address)
        backend = WebBackend(address) if address.scheme in ("http", "https") else FsspecBackend(address)
    clear_abandoned()
    patient = PatientBackend(backend, str(address), patience or Patience())
    return BucketStore(address, patient)


def _need(package: str, address: Address) -> None:
    if find_spec(package) is None:
        raise DependencyError(f"{address}: {_HELP}; {package} is not installed")
