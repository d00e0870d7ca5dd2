"""lccodec: a portable, pure-NumPy codec for training checkpoints."""

from .chain.bundled import open_path as open
from .chain.bundling import bundle, unbundle
from .chain.chain import Chain
from .chain.checkpoint import CheckpointFile
from .chain.figures import Figures
from .chain.info import ArrayInfo, CheckpointInfo
from .chain.keep import Keep
from .chain.plan import Plan
from .chain.planned import ArrayPlan
from .chain.prune import Pruning
from .chain.single_file import load, load_file, save, save_file
from .chain.tuning import Trial, tune
from .chain.validate import Problem, validate
from .element_types import BFLOAT16_BITS
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
    WorkerError,
)
from .frame.decode import decode
from .frame.encode import encode
from .policy.balanced import Balanced
from .policy.policy import Policy
from .policy.presets import POLICIES
from .policy.roles import ROLES
from .quantizers.clusters import Clusters
from .quantizers.exponent import ExponentBuckets
from .quantizers.keyframe import KeyframeSteps
from .quantizers.logarithmic import LogSteps
from .quantizers.lossless import Lossless
from .quantizers.triggered import Triggered
from .quantizers.uniform import UniformDeadzone

__version__ = "0.1.0"  # of the package; the version of the format is in `lccodec.constants`

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
    "Figures",
    "FormatError",
    "Keep",
    "KeyframeSteps",
    "LccodecError",
    "LccodecWarning",
    "LimitError",
    "LogSteps",
    "Lossless",
    "Plan",
    "Policy",
    "Problem",
    "Pruning",
    "StorageError",
    "Trial",
    "Triggered",
    "TruncatedError",
    "UniformDeadzone",
    "UnsupportedError",
    "WorkerError",
    "__version__",
    "bundle",
    "decode",
    "encode",
    "load",
    "load_file",
    "open",
    "save",
    "save_file",
    "tune",
    "unbundle",
    "validate",
]
