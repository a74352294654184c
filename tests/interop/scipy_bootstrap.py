"""Holds the statistics of `baton compare` against SciPy's, on the same sums per task.

    python tests/interop/scipy_bootstrap.py target/debug/baton

The sums come from the measures' SQL. SciPy resamples them by itself: for every interval the percentile bootstrap over tasks, and for some
comparisons the permutation test. Both sides resample at random, so they agree within what resampling scatters.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import warnings
from collections import defaultdict

import numpy as np
from scipy import stats

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATON = pathlib.Path(sys.argv[1]).resolve()
HANDOFFS = {"completeness", "constraint_retention", "redundant_tool_calls", "leaks", "context_tokens_after"}
TASKS = {"task_rework_free_rate", "wasted_tool_calls", "input_tokens"}
# Resamples of Baton and of SciPy.
OURS, THEIRS = 1999, 9999
# The end of a 95 % interval of a normal distribution scatters by sqrt(q (1 - q) / n) / density(1.96) standard errors; an interval is
# 3.92 of those wide. Of some 150 ends none should be off by four and a half times that.
SCATTER = 4.5 * np.sqrt(0.025 * 0.975 * (1 / OURS + 1 / THEIRS)) / stats.norm.pdf(1.96) / 3.92


def baton(*args):
    return subprocess.run([BATON, *args], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def sql(store, query):
    return json.loads(baton("sql", query, "--store", store, "--format", "json"))


def sums(store, measure):
    """By scope (None: all), an array of numerator and denominator of each task."""
    text = (ROOT / f"analyzer/src/measures/{measure}.sql").read_text()
    key = "task_id" if measure in TASKS else "handoff_id"
    about = "task_id AS task, NULL AS a, NULL AS b" if measure in TASKS else "h.task_id AS task, from_agent AS a, to_agent AS b"
    table = "tasks h" if measure in TASKS else "handoffs h"
    rows = sql(store, f"SELECT {about}, m.numerator AS n, m.denominator AS d FROM (\n{text}) m JOIN {table} ON h.{key} = m.id "
                      "WHERE m.rated AND m.unknown IS NULL AND m.denominator > 0")
    tasks = sorted(r["task_id"] for r in sql(store, "SELECT task_id FROM tasks WHERE NOT partial"))
    place = {t: i for i, t in enumerate(tasks)}
    out = defaultdict(lambda: np.zeros((len(tasks), 2)))
    for r in rows:
        for scope in {None, (r["a"], r["b"]) if r["a"] else None}:
            out[scope][place[r["task"]]] += (r["n"], r["d"])
    return tasks, out


def rate(x, index):
    n, d = x[index, 0].sum(axis=-1), x[index, 1].sum(axis=-1)
    return n / d


def interval(a, b, paired):
    def difference(i, j=None, axis=-1):
        return rate(b, i if j is None else j) - rate(a, i)

    data = (np.arange(len(a)),) if paired else (np.arange(len(a)), np.arange(len(b)))
    found = stats.bootstrap(data, difference, n_resamples=THEIRS, method="percentile", vectorized=True, batch=500,
                            random_state=np.random.default_rng(7))
    # A resample may hold no task of a rare pair: it has no difference, and both sides leave it out.
    return np.nanpercentile(found.bootstrap_distribution, [2.5, 97.5])


def test(a, b):
    """The permutation test of two independent sides: the larger of own and pooled variance below the difference."""
    both = np.concatenate([a, b])
    e = both[:, 0] - both[:, 0].sum() / both[:, 1].sum() * both[:, 1]
    d, has = both[:, 1], both[:, 1] > 0
    pooled = (e**2).sum() / d.sum()

    def variance(i):
        size = d[i].sum(axis=-1)
        own = (e[i] ** 2).sum(axis=-1) - e[i].sum(axis=-1) ** 2 / has[i].sum(axis=-1)
        return np.maximum(own / size**2, pooled / size)

    def statistic(i, j, axis=-1):
        far = rate(both, i) - rate(both, j)
        # A side where nothing is known, or where nothing varies, is no evidence.
        return np.nan_to_num(np.abs(far) / np.sqrt(variance(i) + variance(j)), posinf=0)

    i, j = np.arange(len(a)), np.arange(len(a), len(both))
    return stats.permutation_test((i, j), statistic, vectorized=True, n_resamples=THEIRS, alternative="greater", batch=500,
                                  random_state=np.random.default_rng(7)).pvalue


def compare(name, stores, paired, wrong):
    """Gives how many intervals and tests were held against each other."""
    measures = sorted(HANDOFFS | TASKS)
    report = json.loads(baton("compare", *stores, "--format", "json", "--measures", ",".join(measures)))
    if report["paired"] != paired:
        wrong.append(f"{name}: paired is {report['paired']}")
    found = {m: [sums(s, m) for s in stores] for m in measures}
    intervals = tests = 0
    for change in report["changes"]:
        if change["interval"] is None:
            continue
        measure = change["measure"]
        scope = (change["from_agent"], change["to_agent"]) if change["scope"] == "pair" else None
        (ids, a), (other, b) = found[measure]
        a, b = a[scope], b[scope]
        if paired:
            shared = sorted(set(ids) & set(other))
            a = a[[ids.index(t) for t in shared]]
            b = b[[other.index(t) for t in shared]]
        what = f"{name}, {measure} {scope or ''}"
        both = rate(b, np.arange(len(b))) - rate(a, np.arange(len(a)))
        if not np.isclose(both, change["difference"], rtol=1e-9, atol=1e-12):
            wrong.append(f"{what}: difference {change['difference']}, SciPy's side has {both}")
        low, high = interval(a, b, paired)
        # Rates of few events take steps: one event on the side that has fewer.
        step = max(x[:, 0].max() / x[:, 1].sum() for x in (a, b))
        most = SCATTER * (high - low) + step
        intervals += 1
        if not (abs(change["interval"][0] - low) <= most and abs(change["interval"][1] - high) <= most):
            wrong.append(f"{what}: interval {change['interval']}, SciPy {[low, high]}, at most {most} apart")
        # The test takes SciPy longer.
        if not paired and change["p"] is not None and (scope is None or "Refunds" in scope):
            p = test(a, b)
            most = 4.5 * np.sqrt(p * (1 - p) * (1 / OURS + 1 / THEIRS)) + 2 / OURS
            tests += 1
            if not abs(change["p"] - p) <= most:
                wrong.append(f"{what}: p {change['p']}, SciPy {p}, at most {most} apart")
    return intervals, tests


def main():
    # Resamples without a denominator, and columns in which nothing varies.
    np.seterr(divide="ignore", invalid="ignore")
    warnings.simplefilter("ignore", stats.DegenerateDataWarning)
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        a, same, other = (f"{folder}/{n}" for n in ("a", "same", "other"))
        worse = ["--regression", "1:Triage->Refunds:completeness"]
        baton("generate", "--spans", "10000", "--seed", "1", "--store", a)
        baton("generate", "--spans", "10000", "--seed", "1", "--store", same, *worse)
        baton("generate", "--spans", "5000", "--seed", "2", "--store", other, *worse)
        # The same seed makes the same tasks.
        done = [compare("paired", [a, same], True, wrong), compare("not paired", [a, other], False, wrong)]
    (i, _), (j, tests) = done
    print("\n".join(wrong) or f"{i + j} intervals and {tests} tests agree with SciPy's")
    sys.exit(bool(wrong))


main()
