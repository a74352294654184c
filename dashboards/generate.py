#!/usr/bin/env python3
"""Writes the dashboards, alert rules and provisioning files, or checks that they are as they would be written.

baton measures --format json > measures.json
python generate.py measures.json            # or the binary itself: generate.py ../target/release/baton
python generate.py --check measures.json    # 1 and the names of files that differ
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from gen import alerts, index, leaks, measures, one, overview, pair, pipeline, provisioning

HERE = Path(__file__).resolve().parent / "grafana"


def files(source: Path) -> dict[str, str]:
    """Every generated file by its path below `grafana/`."""
    listed = measures.load(source)
    boards = [m.board(listed) for m in (overview, pair, one, leaks, pipeline)]
    texts = {f"dashboards/{b.uid}.json": b.json() for b in boards}
    made = [(b, json.loads(texts[f"dashboards/{b.uid}.json"])) for b in boards]
    ids = alerts.panel_ids(made)
    return texts | {
        "PANELS.md": index.page(made, alerts.alerts(listed)),
        "provisioning/datasources/baton.yaml": provisioning.datasources(),
        "provisioning/dashboards/baton.yaml": provisioning.dashboards(),
        "provisioning/alerting/baton.yaml": alerts.provisioned(listed, ids),
    }


def main() -> int:
    """0: written, or nothing differs; 1: something differs."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("measures", type=Path, help="output of `baton measures --format json`, or the binary")
    p.add_argument("--check", action="store_true", help="write nothing; list what differs")
    p.add_argument("--out", type=Path, default=HERE, help="folder to write to [%(default)s]")
    args = p.parse_args()
    wanted = files(args.measures)
    there = {str(f.relative_to(args.out)) for f in args.out.rglob("*") if f.is_file()}
    stale = sorted(there - set(wanted))
    differ = [
        name for name, text in wanted.items() if name not in there or (args.out / name).read_text(encoding="utf-8") != text
    ]
    if args.check:
        for name in differ:
            print(f"differs: {name}")
        for name in stale:
            print(f"not generated: {name}")
        return 1 if differ or stale else 0
    for name in differ:
        (args.out / name).parent.mkdir(parents=True, exist_ok=True)
        (args.out / name).write_text(wanted[name], encoding="utf-8")
    print(f"{len(wanted)} files, {len(differ)} written")
    for name in stale:
        print(f"not generated, remove it: {name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
