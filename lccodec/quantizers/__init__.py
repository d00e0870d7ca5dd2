"""Quantizers: each partitions the differences of an array, and gives each part a representative.

The decoder does not know which quantizer was used (SPEC 7.7). `base` and ``docs/quantizers.md``
say what a quantizer of your own needs. This folder imports `entropy` and the modules that lie in no
folder.
"""

from .base import Guarantee, Partition, Quantizer
from .clusters import Centres
from .registry import QUANTIZERS, register
from .residual import Residual, Zone

__all__ = ["QUANTIZERS", "Centres", "Guarantee", "Partition", "Quantizer", "Residual", "Zone", "register"]
