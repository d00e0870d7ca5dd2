"""lccodec: a portable, pure-NumPy codec for training checkpoints."""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # a name is loaded when it is first used: a command needs few of them
    from .chain.chain import Chain
    from .chain.checkpoint_file import CheckpointFile
    from .chain.checkpoint_file import open_checkpoint_file as open
    from .chain.life.compact import Compaction, Rewriting
    from .chain.life.prune import Keep, Pruning
    from .chain.life.rollback import RolledBack
    from .chain.life.transfer import bundle, unbundle
    from .chain.mend.mirror import MirrorState
    from .chain.mend.protect import Protection
    from .chain.mend.repair import Repair, Salvage
    from .chain.read.checkpoint import Arrivals
    from .chain.read.follower import Follower, Lag, Patch, Update, follow
    from .chain.read.info import ArrayInfo, CheckpointInfo
    from .chain.read.validate import Problem, validate
    from .chain.save.plan import ArrayPlan, Estimate, Plan
    from .chain.save.single_file import load, load_file, save, save_file
    from .container.manifest import Figures
    from .container.tree import Adapter
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
    from .frame.checked import Checked
    from .frame.decode import decode
    from .frame.encode import encode
    from .loops import kernels
    from .policy.balanced import Balanced
    from .policy.policy import Policy
    from .policy.presets import POLICIES, fields
    from .policy.roles import ROLES, Assignment
    from .quantizers.base import Lossless, Quantizer
    from .quantizers.exponent import ExponentBuckets
    from .quantizers.logarithmic import LogSteps
    from .quantizers.smooth import Smooth
    from .quantizers.triggered import Triggered
    from .quantizers.uniform import KeyframeSteps, UniformDeadzone

__version__ = "0.1.0"  # of the package; the version of the format is in `lccodec.constants`

__all__ = [
    "BFLOAT16_BITS",
    "POLICIES",
    "ROLES",
    "Adapter",
    "ArgumentError",
    "ArrayInfo",
    "ArrayPlan",
    "Arrivals",
    "Assignment",
    "Balanced",
    "Chain",
    "ChainError",
    "Checked",
    "CheckpointFile",
    "CheckpointInfo",
    "ChecksumError",
    "Compaction",
    "DataError",
    "DependencyError",
    "Estimate",
    "ExponentBuckets",
    "Figures",
    "Follower",
    "FormatError",
    "Keep",
    "KeyframeSteps",
    "Lag",
    "LccodecError",
    "LccodecWarning",
    "LimitError",
    "LogSteps",
    "Lossless",
    "MirrorState",
    "Patch",
    "Plan",
    "Policy",
    "Problem",
    "Protection",
    "Pruning",
    "Quantizer",
    "Repair",
    "Rewriting",
    "RolledBack",
    "Salvage",
    "Smooth",
    "StorageError",
    "Triggered",
    "TruncatedError",
    "UniformDeadzone",
    "UnsupportedError",
    "Update",
    "WorkerError",
    "__version__",
    "bundle",
    "decode",
    "encode",
    "fields",
    "follow",
    "kernels",
    "load",
    "load_file",
    "open",
    "save",
    "save_file",
    "unbundle",
    "validate",
]

_MODULES: Final = {
    "container.tree": ("Adapter",),
    "chain.chain": ("Chain",),
    "chain.checkpoint_file": ("CheckpointFile", "open"),
    "chain.life.transfer": ("bundle", "unbundle"),
    "chain.life.compact": ("Compaction", "Rewriting"),
    "chain.life.prune": ("Keep", "Pruning"),
    "chain.life.rollback": ("RolledBack",),
    "chain.mend.protect": ("Protection",),
    "chain.mend.repair": ("Repair", "Salvage"),
    "chain.mend.mirror": ("MirrorState",),
    "chain.read.checkpoint": ("Arrivals",),
    "chain.read.follower": ("Follower", "Lag", "Patch", "Update", "follow"),
    "chain.read.info": ("ArrayInfo", "CheckpointInfo"),
    "chain.read.validate": ("Problem", "validate"),
    "chain.save.plan": ("ArrayPlan", "Estimate", "Plan"),
    "chain.save.single_file": ("load", "load_file", "save", "save_file"),
    "container.manifest": ("Figures",),
    "element_types": ("BFLOAT16_BITS",),
    "errors": (
        "ArgumentError",
        "ChainError",
        "ChecksumError",
        "DataError",
        "DependencyError",
        "FormatError",
        "LccodecError",
        "LccodecWarning",
        "LimitError",
        "StorageError",
        "TruncatedError",
        "UnsupportedError",
        "WorkerError",
    ),
    "frame.checked": ("Checked",),
    "frame.decode": ("decode",),
    "frame.encode": ("encode",),
    "loops": ("kernels",),
    "policy.balanced": ("Balanced",),
    "policy.policy": ("Policy",),
    "policy.presets": ("POLICIES", "fields"),
    "policy.roles": ("Assignment",),
    "policy.vocabulary": ("ROLES",),
    "quantizers.base": ("Lossless", "Quantizer"),
    "quantizers.exponent": ("ExponentBuckets",),
    "quantizers.logarithmic": ("LogSteps",),
    "quantizers.smooth": ("Smooth",),
    "quantizers.triggered": ("Triggered",),
    "quantizers.uniform": ("KeyframeSteps", "UniformDeadzone"),
}
_PLACES: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{_PLACES[name]}", __name__)
    found = getattr(module, "open_checkpoint_file" if name == "open" else name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
