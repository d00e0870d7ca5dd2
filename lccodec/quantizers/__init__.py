"""What of an array is kept: a partition of its differences, and a representative for each part.

A quantizer chooses; the decoder never knows which one it was (SPEC 7.7). What a quantizer of your
own needs is shown here, and in ``docs/quantizers.md``. Imports the ground floor only.
"""

from .base import Partition, Quantizer
from .clusters import Centres
from .registry import QUANTIZERS, register
from .residual import Residual, Zone

__all__ = ["QUANTIZERS", "Centres", "Partition", "Quantizer", "Residual", "Zone", "register"]
