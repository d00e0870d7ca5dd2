"""The figures of saves as text: what is not known is a dash, never a 0."""

from lccodec.chain.overview import figures_words
from lccodec.cli.render import quality_text
from lccodec.container.manifest import UNKNOWN, Figures


def test_no_checkpoint():
    assert quality_text([]) == "no checkpoints"


def test_what_is_not_known_is_not_said():
    assert figures_words(UNKNOWN) == "-"
    assert figures_words(Figures(spread=2.0, movement=0.0, error=0.5)) == "error 25 % of the spread"
    assert figures_words(Figures(spread=0.0, movement=0.0, error=0.5)) == "-"
    assert figures_words(Figures(spread=2.0)) == "-"


def test_a_lag_of_nearly_nothing_has_no_sign():
    found = Figures(spread=2.0, movement=1.0, error=0.5, lag=-0.001)
    assert figures_words(found) == "error 0.5 movements, 25 % of the spread; lag 0.00 intervals"
