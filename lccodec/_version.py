"""The version of the package (the format's own version is in ``constants``)."""

__version__ = "0.1.0"
