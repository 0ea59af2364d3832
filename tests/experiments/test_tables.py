import pytest

from experiments.claims import by_method, series
from experiments.figures import panels, style
from experiments.tables import markdown, number

ROWS = [
    {"label": "OMP", "shots": 1, "accuracy": 0.2, "residual": 0.5},
    {"label": "OMP", "shots": 1, "accuracy": 0.4, "residual": 0.5},
    {"label": "NN", "shots": 1, "accuracy": 0.5, "residual": None},
    {"label": "NN", "shots": 5, "accuracy": 0.7, "residual": None},
]


def test_a_table_has_means_over_seeds_bold_for_the_best_and_dashes_for_missing_values():
    assert by_method(ROWS, "shots", ["accuracy"]) == (
        "| | 1 | 5 |\n|---|---|---|\n| OMP | .300 | – |\n| NN | **.500** | **.700** |\n"
    )


def test_the_lowest_value_can_be_the_best():
    rows = [{**row, "ece": row["accuracy"]} for row in ROWS[:3]]
    assert "**.300**" in by_method(rows, "shots", ["ece"])


def test_the_interval_over_seeds_is_students():
    # Two values 0.1 from their mean: standard error 0.1, t(0.975, 1) = 12.706.
    assert series(ROWS[:2], "shots", "accuracy")[2:] == (
        [pytest.approx(0.3 - 1.2706, abs=1e-4)],
        [pytest.approx(0.3 + 1.2706, abs=1e-4)],
    )


def test_a_single_row_keeps_its_own_interval():
    row = {"label": "NN", "shots": 1, "accuracy": 0.5, "accuracy_low": 0.4, "accuracy_high": 0.7}
    assert series([row], "shots", "accuracy") == ([1], [0.5], [0.4], [0.7])
    assert ".500** ± .150" in by_method([row], "shots", ["accuracy"], interval=True)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, ".000"), (0.12345, ".123"), (1.0, "1.000"), (-0.5, "-.500"), (2.5, "2.500"), (0.9999, "1.000")],
)
def test_short_numbers(value, text):
    assert number(value) == text


def test_a_plain_table():
    assert markdown(("a", "b"), [("1", "2")]) == "| a | b |\n|---|---|\n| 1 | 2 |\n"


def test_each_method_has_a_style_and_each_beam_a_shade():
    wide, narrow = style("HB-OMP (beam 32)"), style("HB-OMP (beam 8)")
    assert wide["color"] != narrow["color"]
    assert wide["marker"] == narrow["marker"] == style("HB-OMP")["marker"] != style("OMP")["marker"]
    assert style("HB-OMP (beam 7)") == style("HB-OMP")


def test_a_legend_with_long_names_is_not_cut_off():
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    rows = [{**ROWS[0], "label": f"HCEP, words and pictures, some classes without images {i}"} for i in range(9)]
    figure = panels({"": rows}, "shots", ("accuracy", "residual", "accuracy"), "images per class")
    FigureCanvasAgg(figure).draw()
    legend = figure.legends[0].get_window_extent()
    assert legend.x0 >= 0
    assert legend.x1 <= figure.bbox.width
    assert figure.axes[0].get_window_extent().height > figure.bbox.height / 3
