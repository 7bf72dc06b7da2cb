"""What the cluster's benchmarks leave behind: each group by itself, beside the others, every figure with its goal."""

from __future__ import annotations

from pathlib import Path

from bench.figures import Goal, Machine, figure
from bench.kubernetes_results import ClusterResults, Group, cluster_page, read_groups, write_group

ORDER = ["kill", "crash", "many"]
MACHINE = Machine(
    processor="a processor", cores=2, memory_gib=4.0, kernel="6.1", python="3.11.7", file_system="ext4",
    load_before=0.1, load_after=0.0, began="2026-11-22 12:00 UTC", took_s=0.0, commit="abcdef0", quick=False,
)  # fmt: skip


def group(value: float, *, began: str = "2026-11-22 12:00 UTC", note: str = "") -> Group:
    one = figure("k8s_x_s", f"took {value:g}", value, "s", samples=20, goal=Goal("at most", 2.0), note=note)
    return Group(
        began=began,
        took_s=9.0,
        commit="abcdef0",
        load_before=1.5,
        load_after=2.5,
        figures=[one],
        samples={"x": [value]},
    )


def test_group_that_is_measured_again_replaces_itself_and_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "results" / "kubernetes.json"
    assert read_groups(path) == {}
    write_group(path, MACHINE, "crash", group(1.0), ORDER)
    write_group(path, MACHINE, "kill", group(3.0), ORDER)
    results = write_group(path, MACHINE, "crash", group(1.5, began="2026-11-23 09:00 UTC"), ORDER)
    assert list(results.groups) == ["kill", "crash"], "in the order of the page"
    assert read_groups(path) == results.groups
    assert results.groups["crash"].samples == {"x": [1.5]}
    assert results.groups["kill"].began == "2026-11-22 12:00 UTC"


def test_page_shows_each_figure_beside_its_goal_with_its_own_date_and_load() -> None:
    results = ClusterResults(machine=MACHINE, groups={"kill": group(3.0), "crash": group(1.0, note="none lost")})
    page = cluster_page(results, "# Head\n\n", {"kill": "too slow here", "crash": "never told"})
    assert "| took 3 | 3 s | 20 | <= 2 | **no** |  | 2026-11-22 12:00 UTC | 1.5, 2.5 |" in page
    assert "| took 1 | 1 s | 20 | <= 2 | yes |  | 2026-11-22 12:00 UTC | 1.5, 2.5 |" in page
    assert "- **took 1**: none lost." in page
    assert "- **took 3**: too slow here" in page
    assert "never told" not in page


def test_page_without_a_missed_goal_gives_no_reasons() -> None:
    page = cluster_page(ClusterResults(machine=MACHINE, groups={"kill": group(1.0)}), "", {"kill": "x"})
    assert "missed" not in page
