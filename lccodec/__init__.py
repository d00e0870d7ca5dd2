"""lccodec: a portable, pure-NumPy codec for training checkpoints."""

from ._version import __version__
from .arrays import encode
from .balanced import Balanced
from .buckets import ExponentBuckets
from .checkpoint import ArrayInfo, CheckpointFile, CheckpointInfo
from .checkpoint import open_file as open
from .choices import ArrayPlan
from .clusters import Clusters
from .errors import (
    ArgumentError,
    ChainError,
    ChecksumError,
    DataError,
    DependencyError,
    FormatError,
    LccodecError,
    LccodecWarning,
    LimitError,
    StorageError,
    TruncatedError,
    UnsupportedError,
)
from .files import load, load_file, save, save_file
from .floats import BFLOAT16_BITS
from .frame import decode
from .moments import LogSteps
from .policy import Policy
from .presets import POLICIES
from .quantize import Lossless, UniformDeadzone
from .roles import ROLES
from .store import Chain
from .trigger import Triggered
from .tuning import Trial, tune
from .validate import Problem, validate

__all__ = [
    "BFLOAT16_BITS",
    "POLICIES",
    "ROLES",
    "ArgumentError",
    "ArrayInfo",
    "ArrayPlan",
    "Balanced",
    "Chain",
    "ChainError",
    "CheckpointFile",
    "CheckpointInfo",
    "ChecksumError",
    "Clusters",
    "DataError",
    "DependencyError",
    "ExponentBuckets",
    "FormatError",
    "LccodecError",
    "LccodecWarning",
    "LimitError",
    "LogSteps",
    "Lossless",
    "Policy",
    "Problem",
    "StorageError",
    "Trial",
    "Triggered",
    "TruncatedError",
    "UniformDeadzone",
    "UnsupportedError",
    "__version__",
    "decode",
    "encode",
    "load",
    "load_file",
    "open",
    "save",
    "save_file",
    "tune",
    "validate",
]
