"""The report as one HTML page: from its document to a file that needs no network.

The document is made in ``inspect``; nothing here reads a checkpoint. ``web/`` has the page's own
text, styles and scripts. Its pictures are drawn by Vega in the browser of whoever opens it.
"""

from .page import write_page

__all__ = ["write_page"]
