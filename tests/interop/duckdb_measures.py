"""Runs every measure's SQL unchanged in DuckDB over the Parquet files of a store, and compares row by row with Baton's answer.

    python duckdb_measures.py path/to/baton

Also opens the files of spans, to see that they need no help.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import duckdb

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATON = pathlib.Path(sys.argv[1]).resolve()
TABLES = ["tasks", "agent_runs", "inferences", "tool_calls", "handoffs", "handoff_constraints", "leaks", "findings"]


def baton(*args):
    return subprocess.run([BATON, *args], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def rows(cursor):
    names = [d[0] for d in cursor.description]
    return sorted((dict(zip(names, r)) for r in cursor.fetchall()), key=lambda r: r["id"])


def main():
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        store = pathlib.Path(folder) / "store"
        baton("import", "sample-traces", "tests/cases/faults", "--store", str(store))
        report = json.loads(baton("eval", "--store", str(store), "--format", "json"))
        db = duckdb.connect()
        db.execute("SET TimeZone = 'UTC'")
        for t in TABLES:
            db.execute(f"CREATE VIEW {t} AS SELECT * FROM read_parquet('{store}/tables/current/{t}/*.parquet')")
        measures = sorted((ROOT / "analyzer/src/measures").glob("*.sql"))
        for file in measures:
            sql = file.read_text()
            theirs = rows(db.execute(sql))
            ours = sorted(json.loads(baton("sql", sql, "--store", str(store), "--format", "json")), key=lambda r: r["id"])
            if theirs != ours:
                different = [(a, b) for a, b in zip(theirs, ours) if a != b]
                wrong.append(f"{file.stem}: {len(theirs)} rows, Baton {len(ours)}; first difference {different[:1]}")
            known = [r for r in theirs if r["rated"] and r["unknown"] is None]
            total = next(m for m in report["measures"] if m["name"] == file.stem)
            scale = 1e-6 if file.stem.endswith("_ms") else 1
            denominator = sum(int(r["denominator"]) for r in known) or None
            numerator = sum(int(r["numerator"]) for r in known) * scale if denominator else None
            unknown = sum(1 for r in theirs if r["rated"] and r["unknown"] is not None)
            stated = (total["numerator"], total["denominator"], total["unknown"])
            same = denominator == stated[1] and unknown == stated[2]
            same = same and (numerator == stated[0] or abs(numerator - stated[0]) < 1e-6)
            if not same:
                wrong.append(f"{file.stem}: report says {stated}, DuckDB {(numerator, denominator, unknown)}")
        spans = db.execute(f"SELECT count(*), count(DISTINCT trace_id) FROM read_parquet('{store}/spans/**/*.parquet')").fetchone()
        own = json.loads(baton("sql", "SELECT count(*) AS n, count(DISTINCT trace_id) AS t FROM spans", "--store", str(store), "--format", "json"))[0]
        if spans != (own["n"], own["t"]):
            wrong.append(f"spans: DuckDB counts {spans}, Baton {own}")
    print("\n".join(wrong) or f"{len(measures)} measures and {spans[0]} spans agree with DuckDB {duckdb.__version__}")
    sys.exit(bool(wrong))


main()
