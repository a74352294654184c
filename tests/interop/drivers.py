"""Asks the SQL endpoint through the drivers that people have.

    python drivers.py path/to/baton [folder for builds]

psycopg over both protocols, in text and binary, with cursors at the server; asyncpg; psql, Go's pgx and lib/pq, and JDBC where they
are at hand. With passwords and TLS as well as without.
"""

import asyncio
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import asyncpg
import psycopg

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BATON = pathlib.Path(sys.argv[1]).resolve()
BUILDS = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "target/ci-drivers").resolve()
JDBC = "org.postgresql:postgresql:42.7.8"


class Endpoint:
    """An endpoint over a store, with lines of `[serve]`."""

    def __init__(self, store, config="", env=None):
        file = pathlib.Path(f"{store}.toml")
        file.write_text("[serve]\n" + config)
        command = [BATON, "--config", file, "serve", "--store", store, "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        line = self.process.stderr.readline()
        if not line.startswith("listening: SQL"):
            raise SystemExit(f"it did not start: {line}{self.process.stderr.read()}")
        self.port = int(line.split(" on ")[1].split(",")[0].rsplit(":", 1)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        if self.process.wait(timeout=20) != 0:
            raise SystemExit("it did not end in order")


def refuses(error, work):
    try:
        work()
    except error as e:
        return e
    raise SystemExit("was not refused")


def with_psycopg(dsn):
    with psycopg.connect(dsn, autocommit=True) as db:
        tasks = db.execute("SELECT COUNT(*) FROM tasks").fetchone()[0]
        assert tasks > 0
        row = db.execute("SELECT task_id, agents, start, completed, handoffs FROM tasks WHERE handoffs > %s ORDER BY task_id", [0]).fetchone()
        assert isinstance(row[1], list) and row[2].tzinfo and isinstance(row[3], bool) and isinstance(row[4], int), row
        # The same over the simple protocol, and in binary.
        with psycopg.ClientCursor(db) as simple:
            assert simple.execute("SELECT task_id, agents, start, completed, handoffs FROM tasks WHERE handoffs > %s ORDER BY task_id", [0]).fetchone() == row
        with db.cursor(binary=True) as binary:
            assert binary.execute("SELECT task_id, agents, start, completed, handoffs FROM tasks WHERE handoffs > %s ORDER BY task_id", [0]).fetchone() == row
        for _ in range(8):
            assert db.execute("SELECT COUNT(*) FROM handoffs WHERE task_id = %s", [row[0]], prepare=True).fetchone()[0] == row[4]
        assert refuses(psycopg.Error, lambda: db.execute("CREATE TABLE x (a int)")).sqlstate == "25006"
        assert refuses(psycopg.errors.UndefinedTable, lambda: db.execute("SELECT * FROM nowhere"))
        assert refuses(psycopg.errors.UndefinedColumn, lambda: db.execute("SELECT nothing FROM tasks"))
        db.execute("SET statement_timeout = '200ms'")
        long = "SELECT SUM(a.value * b.value) FROM generate_series(1, 10000000) a, generate_series(1, 1000000) b"
        assert refuses(psycopg.errors.QueryCanceled, lambda: db.execute(long))
    with psycopg.connect(dsn) as db, db.cursor("parts") as parts:
        parts.itersize = 2
        parts.execute("SELECT task_id FROM tasks ORDER BY task_id")
        assert len(list(parts)) == tasks
    print("psycopg: passed")


async def with_asyncpg(port, **login):
    db = await asyncpg.connect(host="127.0.0.1", port=port, database="baton", **login)
    tasks = await db.fetchval("SELECT COUNT(*) FROM tasks")
    row = await db.fetchrow("SELECT task_id, agents, start FROM tasks WHERE handoffs > $1 ORDER BY task_id", 0)
    assert tasks > 0 and isinstance(row["agents"], list) and row["start"].tzinfo
    statement = await db.prepare("SELECT COUNT(*) FROM handoffs WHERE task_id = $1")
    assert await statement.fetchval(row["task_id"]) > 0
    async with db.transaction(readonly=True):
        seen = [r async for r in db.cursor("SELECT task_id FROM tasks")]
    assert len(seen) == tasks
    try:
        await db.execute("DELETE FROM tasks")
        raise SystemExit("was not refused")
    except asyncpg.ReadOnlySQLTransactionError:
        pass
    # What a pool sends before it lends a connection again.
    await db.reset()
    await db.close()
    print("asyncpg: passed")


def with_psql(dsn):
    if not shutil.which("psql"):
        print("psql: not at hand, left out")
        return
    def ask(command):
        done = subprocess.run(["psql", dsn, "-X", "-c", command], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and not done.stderr, (command, done.stdout, done.stderr)
        return done.stdout
    for command, holds in [("\\d", "handoffs"), ("\\dt", "measure_sums"), ("\\d handoffs", "timestamp with time zone"),
                           ("\\dn", "public"), ("\\l", "baton"), ("\\conninfo", "baton"), ("SELECT COUNT(*) FROM tasks", "(1 row)")]:
        assert holds in ask(command), (command, ask(command))
    print("psql: passed")


def with_go(dsn):
    if not shutil.which("go"):
        print("Go: not at hand, left out")
        return
    program = BUILDS / "drivers-go"
    subprocess.run(["go", "build", "-C", HERE / "drivers", "-mod=readonly", "-o", program, "."], check=True)
    subprocess.run([program, dsn], check=True, timeout=120)


def with_jdbc(port, user, password):
    if not (shutil.which("mvn") and shutil.which("javac")):
        print("JDBC: not at hand, left out")
        return
    copy = ["mvn", "-q", "dependency:copy", f"-Dartifact={JDBC}", f"-DoutputDirectory={BUILDS}"]
    subprocess.run(copy, check=True, stdout=subprocess.DEVNULL, cwd=BUILDS)
    path = f"{BUILDS}:{next(BUILDS.glob('postgresql-*.jar'))}"
    subprocess.run(["javac", "-d", BUILDS, HERE / "drivers/Jdbc.java"], check=True)
    url = f"jdbc:postgresql://127.0.0.1:{port}/baton?sslmode=disable"
    subprocess.run(["java", "-cp", path, "Jdbc", url, user, password], check=True, timeout=120)


def main():
    BUILDS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        store = pathlib.Path(folder) / "store"
        subprocess.run([BATON, "-q", "import", "--store", store, ROOT / "sample-traces"], stderr=subprocess.DEVNULL)
        secret = {"READER": "pass word"}
        user = '[[serve.users]]\nname = "reader"\npassword_env = "READER"\n'
        with Endpoint(store) as e:
            dsn = f"postgresql://anyone@127.0.0.1:{e.port}/baton?sslmode=disable"
            with_psycopg(dsn)
            asyncio.run(with_asyncpg(e.port, user="anyone", ssl=False))
            with_psql(dsn)
        with Endpoint(store, user, secret) as e:
            dsn = f"postgresql://reader:pass%20word@127.0.0.1:{e.port}/baton?sslmode=disable"
            with_psycopg(dsn)
            asyncio.run(with_asyncpg(e.port, user="reader", password="pass word", ssl=False))
            with_go(dsn)
            with_jdbc(e.port, "reader", "pass word")
            wrong = dsn.replace("pass%20word", "wrong")
            assert "authentication failed" in str(refuses(psycopg.OperationalError, lambda: psycopg.connect(wrong)))
        cert, key = pathlib.Path(folder) / "cert.pem", pathlib.Path(folder) / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj",
                        "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
        with Endpoint(store, f'[serve.tls]\ncert = "{cert}"\nkey = "{key}"\n{user}', secret) as e:
            dsn = f"postgresql://reader:pass%20word@localhost:{e.port}/baton"
            # channel_binding=prefer is what libpq asks for by itself: it must not fail where it is not offered.
            with_psycopg(f"{dsn}?sslmode=verify-full&sslrootcert={cert}")
            with_psycopg(f"{dsn}?sslmode=require&sslnegotiation=direct" if psycopg.pq.version() >= 170000 else f"{dsn}?sslmode=require")
            refused = refuses(psycopg.OperationalError, lambda: psycopg.connect(f"{dsn}?sslmode=disable"))
            assert "encrypted" in str(refused), refused
    print("all drivers: passed")


main()
