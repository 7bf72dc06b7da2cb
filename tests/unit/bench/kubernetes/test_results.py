"""What the cluster's benchmarks leave behind: each group by itself, beside the others, every figure with its goal."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from bench.figures import Figure, Goal, Machine, figure
from bench.kubernetes import run as on_kubernetes
from bench.kubernetes.operator_load import applied_figures, looked_at_all
from bench.kubernetes.results import ClusterResults, Group, cluster_page, read_groups, write_group, write_left_out

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


def broken(why: str) -> Group:
    left_out = group(1.0)
    left_out.figures = [Figure(name="crash", title="crash", value=None, unit="", note=why)]
    return left_out


def test_group_that_broke_keeps_its_figures_and_the_page_names_it_until_it_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "kubernetes.json"
    write_group(path, MACHINE, "crash", group(1.0), ORDER)
    results = write_left_out(path, MACHINE, "crash", broken("left out: no power"), ORDER)
    assert results.groups == {"crash": group(1.0)} == read_groups(path)
    results = write_group(path, MACHINE, "kill", group(3.0), ORDER)
    page = cluster_page(results, "", {}, ORDER)
    told = "the figures above are from an earlier run; 2026-11-22 12:00 UTC, abcdef0: left out: no power."
    assert f"## What is missing\n\n- **crash**: {told}\n- **many**: not measured yet.\n" in page
    assert "left out" not in cluster_page(write_group(path, MACHINE, "crash", group(1.5), ORDER), "", {}, ORDER)


def test_page_with_every_group_names_none_as_missing() -> None:
    results = ClusterResults(machine=MACHINE, groups={name: group(1.0) for name in ORDER})
    assert "missing" not in cluster_page(results, "", {}, ORDER)


def test_page_of_the_tree_is_made_of_its_results() -> None:
    results = msgspec.json.decode(on_kubernetes.RESULTS.read_bytes(), type=ClusterResults)
    assert on_kubernetes.the_page(results) == on_kubernetes.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(("worst", "met"), [(15.0, True), (15.4, False)])
def test_applied_services_meet_no_goal_where_the_worst_is_above_it(worst: float, met: bool) -> None:
    median, highest = applied_figures([11.0, 12.0, worst])
    assert (median.value, highest.value) == (12.0, worst)
    assert (median.goal_met, highest.goal_met) == (met, met)


def test_second_look_at_a_service_is_not_a_look_at_another() -> None:
    looks = 'deathless_operator_reconciles_total{kind="DeathlessService"}'
    assert looked_at_all({looks: 200.0, "deathless_operator_services": 200.0})
    assert not looked_at_all({looks: 300.0, "deathless_operator_services": 199.0})
    assert not looked_at_all({looks: 300.0})


def test_faults_and_their_figures_have_names_of_their_own() -> None:
    names = [fault.name for fault in on_kubernetes.FAULTS]
    titles = [fault.title for fault in on_kubernetes.FAULTS]
    assert len(set(names)) == len(names)
    assert len(set(titles)) == len(titles)
    assert all(fault.with_leader is not None for fault in on_kubernetes.FAULTS if "node" in fault.title)
