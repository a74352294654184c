"""Runs every measure's SQL in Spark over the Parquet files of a store, and compares row by row with Baton's answer.

    python spark_measures.py path/to/baton

Needs `pyspark` 4 and Java 17 or newer. Also reads every column of the files of spans and counts the rows of every table, to see that
Spark can read them. What Spark needs to be told is SETTINGS and FUNCTIONS: nothing else is done for it, the SQL runs as it is.
"""

import contextlib
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.version import __version__ as version

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATON = pathlib.Path(sys.argv[1]).resolve()

# What a reader has to set.
SETTINGS = {
    # Spark refuses files with times in nanoseconds, unless it may read them as whole numbers: nanoseconds since 1970. No measure
    # asks for a time.
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    # What overflows or cannot be cast is an error, not a wrong number or NULL. It is the default, which SPARK_ANSI_SQL_MODE would change.
    "spark.sql.ansi.enabled": "true",
}
# Functions that Spark has under another name: it is taught ours, so that the SQL stays as it is.
FUNCTIONS = ["CREATE TEMPORARY FUNCTION array_length(a ARRAY<STRING>) RETURNS INT RETURN array_size(a)"]
# What makes Spark small and quiet. It changes no answer.
SMALL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    # A short run: compile quickly, not well.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def baton(*args):
    return subprocess.run([BATON, *args], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def asked(store, sql):
    return json.loads(baton("sql", sql, "--store", str(store), "--format", "json"))


def lines(rows):
    """Rows as JSON, so that 1, 1.0 and true differ, which Python holds for equal."""
    return sorted(json.dumps(r, ensure_ascii=False) for r in rows)


@contextlib.contextmanager
def started(folder):
    """Spark, which leaves nothing where it was started."""
    (folder / "conf").mkdir()
    # Errors alone. Without a file of its own, and a level for Spark in it, the logger tells at every start what it took instead.
    (folder / "conf/log4j2.properties").write_text(
        "rootLogger.level = error\nrootLogger.appenderRef.stderr.ref = stderr\n"
        "appender.stderr.type = Console\nappender.stderr.name = stderr\nappender.stderr.target = SYSTEM_ERR\n"
        "logger.spark.name = org.apache.spark\nlogger.spark.level = error\n"
    )
    os.environ["SPARK_CONF_DIR"] = str(folder / "conf")
    # Else it looks up the machine's name, and warns where that is no address of a network.
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # What it cannot run is told once, by this program, without a page of Java.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    builder = SparkSession.builder.master("local[2]").config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    for name, value in {**SETTINGS, **SMALL}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def difference(theirs, ours):
    """The first rows of each side that the other lacks."""
    return f"Spark {sorted(set(theirs) - set(ours))[:1]}, Baton {sorted(set(ours) - set(theirs))[:1]}"


def totals(name, rows):
    """Numerator, denominator and number of unknown rows, as the report adds them up."""
    rated = [r for r in rows if r["rated"]]
    known = [r for r in rated if r["unknown"] is None]
    denominator = sum(r["denominator"] for r in known) or None
    scale = 1e-6 if name.endswith("_ms") else 1
    numerator = sum(r["numerator"] for r in known) * scale if denominator else None
    return numerator, denominator, len(rated) - len(known)


def same(ours, theirs):
    if ours is None or ours[1:] != theirs[1:]:
        return False
    return ours[0] == theirs[0] or None not in (ours[0], theirs[0]) and abs(ours[0] - theirs[0]) < 1e-6


def main():
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        store = folder / "store"
        baton("import", "sample-traces", "tests/cases/faults", "--store", str(store))
        report = json.loads(baton("eval", "--store", str(store), "--format", "json"))
        stated = {m["name"]: (m["numerator"], m["denominator"], m["unknown"]) for m in report["measures"]}
        measures = sorted((ROOT / "analyzer/src/measures").glob("*.sql"))
        if set(stated) != {m.stem for m in measures}:
            wrong.append(f"the report has other measures than there are files: {sorted(set(stated) ^ {m.stem for m in measures})}")
        with started(folder) as spark:
            for function in FUNCTIONS:
                spark.sql(function)
            tables = sorted(t.name for t in (store / "tables/current").iterdir() if any(t.glob("*.parquet")))
            for t in tables:
                spark.read.parquet(f"{store}/tables/current/{t}").createTempView(t)
            spark.read.parquet(f"{store}/spans").createTempView("spans")

            for file in measures:
                sql = file.read_text()
                try:
                    rows = [r.asDict() for r in spark.sql(sql).collect()]
                except PySparkException as e:
                    wrong.append(f"{file.stem}: Spark does not run it: {str(e).strip().splitlines()[0]}")
                    continue
                theirs, ours = lines(rows), lines(asked(store, sql))
                if theirs != ours:
                    wrong.append(f"{file.stem}: {len(theirs)} rows, Baton {len(ours)}; first difference {difference(theirs, ours)}")
                total = totals(file.stem, rows)
                if not same(stated.get(file.stem), total):
                    wrong.append(f"{file.stem}: report says {stated.get(file.stem)}, Spark {total}")

            counts = " UNION ALL ".join(
                [f"SELECT '{t}' AS name, count(*) AS n FROM {t}" for t in [*tables, "spans"]]
                + ["SELECT 'traces' AS name, count(DISTINCT trace_id) AS n FROM spans"]
            )
            theirs, ours = lines(r.asDict() for r in spark.sql(counts).collect()), lines(asked(store, counts))
            if theirs != ours:
                wrong.append(f"numbers of rows: {difference(theirs, ours)}")
            # A count opens no column; this reads all of them, whatever their type.
            spark.table("spans").write.format("noop").mode("overwrite").save()
            spans = spark.table("spans").count()
    print("\n".join(wrong) or f"{len(measures)} measures, {len(tables)} tables and {spans} spans agree with Spark {version}")
    sys.exit(bool(wrong))


main()
