"""lccodec: a portable, pure-NumPy codec for training checkpoints."""

from .chain.chain import Chain
from .chain.life.bundle import bundle, unbundle
from .chain.life.keep import Keep
from .chain.life.prune import Pruning
from .chain.read.bundle import open_path as open
from .chain.read.checkpoint import CheckpointFile
from .chain.read.info import ArrayInfo, CheckpointInfo
from .chain.read.validate import Problem, validate
from .chain.save.planned import ArrayPlan, Plan
from .chain.save.single_file import load, load_file, save, save_file
from .chain.tuning import Trial, tune
from .container.figures import Figures
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
