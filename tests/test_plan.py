"""The plan of an experiment is data: which runs, which rows, which claims, for one size and seed or for several."""

import json
import random
from collections import Counter

import pytest
import torch
from in_process import experiment

from lv_fairseq import UserError
from lv_fairseq.report.run import read_run

claims, config, plan, rare_words = experiment.claims, experiment.config, experiment.plan, experiment.rare_words
rows, seeds, trainings = experiment.rows, experiment.seeds, experiment.trainings
ONE = {**config.DEFAULTS, "seeds": [1, 2], "shortlist": 300, "tau": 400, "train": ["--arch", "rnnsearch_small"]}
MANY = {
    **ONE,
    "seeds": [1, 2, 3],
    "every_seed": ["rnnsearch", "lv", "reshuffle"],
    "ensemble": ["reshuffle"],
    "shortlist": [200, 500],
    "tau": [200, 500],
    "proposals": ["unigram"],
    "candidate_source_words": True,
    "other_lexicon": "other",
    "other_train": ["--arch", "transformer"],
}


def names(settings) -> list:
    return [run.name for run in plan.plan(settings)]


def table(settings) -> list:
    return rows.Table(settings, 9000, {tau: (100, 10) for tau in plan.taus(settings)}).rows()


def test_a_configuration_of_before_trains_the_runs_of_before():
    expected = ["rnnsearch-1", "lv-1", "lv-2", "reshuffle-1"]
    points = [f"frozen-{name}-{place}" for name in ("lv-1", "lv-2", "reshuffle-1") for place in (1, 2)]
    assert names(ONE) == [*expected, *points]
    ids = ["rnnsearch", "rnnsearch-unk", "lv", "lv-list", "lv-unk", "reshuffle", "frozen", "ensemble"]
    assert [row.id for row in table(ONE)] == ids
    assert {row.id: len(row.replicas) for row in table(ONE)}["lv-unk"] == 2
    (ensemble,) = table(ONE)[-1].replicas
    assert {run for run, _ in ensemble.points} == set(points)


def test_all_rows_have_all_seeds_and_sizes():
    runs = plan.plan(MANY)
    kinds = Counter((run.kind, run.size) for run in runs)
    sizes = {(kind, size): 3 for kind in ("rnnsearch", "lv", "reshuffle") for size in (200, 500)}
    assert kinds == {**sizes, ("proposal", 500): 3, ("other", 500): 3, ("frozen", 200): 3, ("frozen", 500): 6}
    assert len(set(names(MANY))) == len(runs)
    found = table(MANY)
    assert all(len(row.replicas) == 3 for row in found if row.id != "ensemble")
    assert all(set(row.against) <= {other.id for other in found[:i]} for i, row in enumerate(found))
    further = ["lv-unigram", "lv-source-words", "rnnsearch-other-lexicon", "lv-other-lexicon", "other-model"]
    assert [row.id for row in found][-6:] == ["ensemble", *further]
    known = set(names(MANY))
    assert {run for row in found for replica in row.replicas for run, _ in replica.points} <= known


def test_a_run_comes_after_the_one_that_it_follows():
    for settings in (ONE, MANY):
        before = set()
        for run in plan.plan(settings):
            assert run.follows is None or run.follows in before
            before.add(run.name)


def test_a_baseline_is_that_of_the_size_of_tau():
    assert [rows.partner(MANY, tau) for tau in (200, 500, 700)] == [200, 500, 500]
    against = {row.id: row.against for row in table(MANY)}
    assert against["lv-200"] == ["rnnsearch-200"] and against["lv-unk-500"] == ["lv-list-500", "rnnsearch-unk-500"]
    assert against["frozen-200"] == ["reshuffle-200"] and against["reshuffle-500"] == ["lv-unk-500"]


def trained(tmp_path, **settings) -> trainings.Trainings:
    return trainings.Trainings({**MANY, **settings}, tmp_path, None, experiment.stages.Stages(tmp_path, tmp_path, 1))


def ended(folder, *names) -> None:
    """What runs leave behind: a best point, and that they have ended."""
    (folder / "stages").mkdir(exist_ok=True)
    for name in names:
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "checkpoint.best_loss_5.1.pt").write_bytes(b"")
        (folder / "stages" / f"train.{name}.json").write_text('""')


def test_the_measure_says_when_a_training_ends(tmp_path):
    equal_time, converged = trained(tmp_path), trained(tmp_path, measure="equal convergence", patience=7)
    for run in plan.plan(MANY):
        flags = converged.flags(run)
        assert "--patience" not in equal_time.flags(run)
        assert ("--patience" in flags) is (run.kind != "other")  # which gets the time of another run
        assert "--patience" not in flags or flags[flags.index("--patience") + 1] == 7
        assert ("--tau" in flags) is (run.kind != "rnnsearch")
        assert "transformer" in flags if run.kind == "other" else "rnnsearch_small" in flags
        assert ("--reshuffle-partitions" in flags) is ("reshuffle" in run.name)
        assert ("--freeze-word-tables" in flags) is (run.start is not None)
    assert equal_time.hours(equal_time.plan[0]) == MANY["hours"]


def test_tuning_can_have_flags_of_its_own_which_count_instead_of_those_of_all(tmp_path):
    runs = trained(tmp_path, train=["--arch", "rnnsearch_small", "--max-update", 10], frozen_train=["--max-update", 12])
    for run in runs.plan:
        flags = runs.flags(run)
        last = max(i for i, flag in enumerate(flags) if flag == "--max-update") if run.kind != "other" else None
        assert last is None or flags[last + 1] == (12 if run.start else 10)


def test_a_run_that_its_time_ended_is_told_of(tmp_path):
    for measure, hours, expected in (
        ("equal convergence", 1.0, ["rnnsearch-1"]),
        ("equal convergence", 3.0, []),
        ("equal time", 1.0, []),
    ):
        runs = trained(tmp_path, measure=measure, hours=hours)
        runs.plan = [experiment.plan.TrainingRun("rnnsearch-1", "rnnsearch", "", 200, 1, 200)]
        (tmp_path / "rnnsearch-1").mkdir(exist_ok=True)
        last = {"extra_state": {"previous_training_time": 3601.0}}
        torch.save(last, tmp_path / "rnnsearch-1" / "checkpoint_last.pt")
        assert runs.at_limit() == []  # it has not ended
        ended(tmp_path, "rnnsearch-1")
        assert runs.at_limit() == expected
        (tmp_path / "stages" / "train.rnnsearch-1.json").unlink()


def test_fewer_points_than_wanted_are_tuned_as_far_as_they_go(tmp_path):
    runs = trained(tmp_path)
    ended(tmp_path, "reshuffle-500-1")
    first, second = (runs.named(f"frozen-reshuffle-500-1-{place}") for place in (1, 2))
    assert runs.possible(first) and not runs.possible(second)
    assert not runs.ended(first.name) and runs.ended(second.name)  # there is nothing to do for it
    assert runs.points(first.name) == [tmp_path / "reshuffle-500-1" / "checkpoint.best_loss_5.1.pt"]  # none of its own


def test_a_table_so_far_has_the_rows_and_seeds_that_are_trained(tmp_path):
    runs = trained(tmp_path)
    for seed in (1, 2):
        ended(tmp_path, f"rnnsearch-200-{seed}", f"rnnsearch-500-{seed}", f"lv-200-{seed}", f"reshuffle-200-{seed}")
    ended(tmp_path, "lv-500-2", "lv-500-3", "frozen-reshuffle-200-1-1", "reshuffle-500-1")
    with pytest.raises(UserError, match="^--so-far: lv-500-1 must have been trained, and have left a model"):
        runs.seeds_so_far()
    ended(tmp_path, "lv-500-1")
    assert runs.seeds_so_far() == [1, 2]  # the third has no baseline
    assert {"rnnsearch-200-3", "frozen-reshuffle-200-2-1"} <= set(runs.pending()) and "lv-500-3" not in runs.pending()
    found = {row.id: row for row in rows.of_ended(table(MANY), [1, 2], runs.ended)}
    assert {tuple(one.seed for one in row.replicas) for row in found.values()} == {(1, 2)}
    assert {"rnnsearch-200", "rnnsearch-500", "lv-200", "lv-unk-500", "lv-source-words"} <= set(found)
    assert found["reshuffle-200"].against == ["lv-unk-200"]
    # of these the second seed is not there
    assert not {"frozen-200", "reshuffle-500", "ensemble", "lv-unigram", "other-model"} & set(found)
    points = lists([200, 500], [100, 500], [1, 10])
    about = claims.claims(MANY, points, list(found))
    assert all(set(one["more"] + one["less"]) <= {*found, *(point["id"] for point in points)} for one in about)
    left_out = [one for one in claims.claims(MANY, points) if one not in about]
    assert [one["more"] for one in left_out] == [["frozen-200"], ["reshuffle-500"], ["frozen-500"], ["ensemble"]]


def test_a_training_without_a_model_is_left_out_of_a_table_so_far(tmp_path):
    runs = trained(tmp_path)
    ended(tmp_path, *names(MANY))
    (tmp_path / "reshuffle-500-2" / "checkpoint.best_loss_5.1.pt").unlink()
    assert [name for name in runs.pending() if not name.startswith("frozen")] == ["reshuffle-500-2"]
    assert runs.seeds_so_far() == [1, 2, 3]
    left_out = {row.id for row in table(MANY)} - {row.id for row in rows.of_ended(table(MANY), [1, 2, 3], runs.ended)}
    assert left_out == {"reshuffle-500", "frozen-500", "ensemble"}


def test_a_whole_table_is_as_it_was(tmp_path):
    runs = trained(tmp_path)
    ended(tmp_path, *names(MANY))
    assert runs.pending() == [] and rows.of_ended(table(MANY), runs.seeds_so_far(), runs.ended) == table(MANY)


def lists(taus, frequent, per_word) -> list:
    places = [(tau, k, x) for tau in taus for k in frequent for x in per_word]
    return [{"id": f"list-{tau}-{k}-{x}", "tau": tau, "K": k, "K'": x} for tau, k, x in places]


@pytest.mark.parametrize("settings", [ONE, MANY], ids=["one", "many"])
def test_claims_are_about_rows_that_there_are(settings):
    points = lists(plan.taus(settings), [100, 200, 500], [0, 1, 2, 5, 10, 20, 50])
    found = claims.claims(settings, points)
    ids = {row.id for row in table(settings)} | {point["id"] for point in points}
    assert all(set(one["more"] + one["less"]) <= ids for one in found)
    assert all(len(one["more"]) == len(one["less"]) and one["expected"] in ("above", "not below") for one in found)
    sizes = len(plan.taus(settings))
    assert len(found) == sizes * (5 + 2) + 1 + 3 * sizes + (sizes > 1)


@pytest.mark.parametrize("kinds", [["lv"], ["reshuffle"], ["lv", "reshuffle"]], ids=", ".join)
@pytest.mark.parametrize("settings", [ONE, MANY], ids=["one", "many"])
def test_an_ensemble_is_compared_with_its_own_members(settings, kinds):
    settings = {**settings, "ensemble": kinds}
    (one,) = [one for one in claims.claims(settings, []) if one["more"] == ["ensemble"]]
    found = {row.id: row for row in table(settings)}
    members = {point for replica in found["ensemble"].replicas for point in replica.points}
    single = [replica for id in one["less"] for replica in found[id].replicas]
    assert single and all(set(replica.points) <= members for replica in single)
    assert ("reshuffled" in one["claim"]) is (len(kinds) == 2)
    assert set(one["less"]) <= set(found["ensemble"].against)
    assert {run for row in found.values() for replica in row.replicas for run, _ in replica.points} <= set(
        names(settings)
    )
    assert experiment.limits.excess(settings) == ""


def test_k_goes_with_tau_is_a_contrast_of_four():
    (one,) = claims.of_tau_and_k(lists([200, 500], [100, 300, 900], [1, 5, 10, 20]))
    assert one["more"] == ["list-200-100-10", "list-500-900-10"]
    assert one["less"] == ["list-200-900-10", "list-500-100-10"]
    assert claims.of_tau_and_k(lists([200], [100, 300], [10])) == [] == claims.of_tau_and_k([])
    assert claims.of_per_word(lists([200], [100], [0, 10])) == []


LARGEST = {
    **MANY,
    "seeds": list(range(1, 21)),
    "frequent": list(range(1, 11)),
    "per_word": list(range(1, 21)),
    "analysis_frequent": list(range(1, 7)),
    "analysis_per_word": [1, 2, 10],
    "points": 2**31 - 1,
}


@pytest.mark.parametrize("settings", [ONE, MANY, LARGEST], ids=["one", "many", "largest"])
def test_what_is_allowed_is_what_a_report_reads(tmp_path, settings):
    assert experiment.limits.excess(settings) == ""
    settings = {**settings, "points": 2}
    output = {"hypotheses": "a.hyp", "bleu": 1.0}
    systems = []
    for row in table(settings):
        seeds = [{"seed": one.seed, "dev": output, "test": output} for one in row.replicas]
        system = {"id": row.id, "against": row.against, "dev": output, "test": output}
        systems.append({**system, "seeds": seeds} if len(seeds) > 1 else system)
    points = lists(plan.taus(settings), settings["analysis_frequent"], settings["analysis_per_word"])
    for point in points:
        point["seeds"] = [{"seed": seed, "test": output} for seed in plan.seeds_of(settings, "lv")]
    ended(tmp_path, *names(settings))
    curves = [{"name": run.title, "seed": run.seed} for run in trained(tmp_path, **settings).shown()]
    places = lists(plan.taus(settings), settings["frequent"], settings["per_word"])
    grid = [{name: point[name] for name in ("tau", "K", "K'")} for point in places]
    found = {"systems": systems, "lists": points, "curves": curves, "grid": grid}
    found["claims"] = claims.claims(settings, points)
    (tmp_path / "results.json").write_text(json.dumps(found))
    read = read_run(tmp_path)
    counted = {what: asked for asked, _, what, _ in experiment.limits.rows(settings)}
    assert counted["systems"] == len(read.systems) and counted["comparisons"] == len(read.comparisons)
    assert counted["learning curves"] == len(read.curves) and counted["claims"] == len(read.claims)
    assert counted["outputs"] == len(read.outputs())


def test_words_are_counted_by_how_often_they_were_seen():
    draw = random.Random(5)
    seen = {f"w{count}": count for count in (1, 2, 3, 10, 11, 100, 101, 1000, 1001, 5000)}
    words = [*seen, "new"]
    references = [[draw.choice(words) for _ in range(8)] for _ in range(40)]
    outputs = [[draw.choice(words) for _ in range(8)] for _ in range(40)]
    expected = []
    for least, most in ((0, 0), (1, 2), (3, 10), (11, 100), (101, 1000), (1001, 10**9)):
        wanted = arrived = 0
        for reference, output in zip(references, outputs):
            left = list(output)
            for word in reference:
                if least <= seen.get(word, 0) <= most:
                    wanted += 1
                    if word in left:
                        left.remove(word)
                        arrived += 1
        expected.append((wanted, arrived))
    texts = [list(map(" ".join, some)) for some in (references, outputs)]
    assert rare_words.recall(*texts, seen) == expected
    (one,) = rare_words.rare_words(texts[0], {"lv": [texts[1], texts[0]]}, seen)
    assert [band["arrived"] for band in one["bands"]] == [[arrived, wanted] for wanted, arrived in expected]


def test_mean_and_spread():
    assert seeds.over_seeds([1.0, 2.0, 3.0]) == {"count": 3, "mean": 2.0, "spread": 1.0}
    assert seeds.over_seeds([4.0]) == {"count": 1, "mean": 4.0, "spread": None}
