"""Weights of a chain for inference engines that load Hugging Face directories.

- :func:`pull` brings a local directory of ``.safetensors`` files to a step of a chain. It is a
  valid model at every moment.
- :class:`Rounding` lets a float32 trainer keep a chain in the types of the engines.
- :func:`publish` writes the steps of a chain as *weight versions*: the directories that slime,
  miles and the ``pull_weights`` of SGLang read. :func:`follow` reads them.

Weight versions need the extra ``weights`` (zstandard).
"""

from .layout import Rounding
from .local import Pulled, Puller, pull
from .publish import Published, Publisher, publish
from .versions import follow

__all__ = ["Published", "Publisher", "Pulled", "Puller", "Rounding", "follow", "publish", "pull"]
