#!/usr/bin/env python3
"""Looks at every manifest below kubernetes/, without a network and without a cluster.

    pip install kubernetes-validate==1.37.0
    python deploy/check.py                       # schemas and rules
    python deploy/check.py target/debug/baton    # and whether the binary takes each command and the configuration

Where there is a kubectl, what it makes of each kustomization is looked at in the same way. Prints a line for each failure, and
`N passed, N failed` at the end; 1 where something failed.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Iterable
from pathlib import Path

# A test of the project reads every file of this folder as text.
sys.dont_write_bytecode = True

from checks import links, load, pods, schema  # noqa: E402
from checks.commands import Binary  # noqa: E402
from checks.load import Doc, Manifests, Wrong  # noqa: E402

HERE = Path(__file__).resolve().parent / "kubernetes"
ALONE = "baton-eval.yaml"
ON_MANY = "cluster/eval.yml"


def headed(path: Path, root: Path) -> Iterable[str]:
    """A file says at its top what to set."""
    head: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        head.append(line)
    if not any(line.startswith("# Set: ") for line in head):
        yield f"{path.relative_to(root)}: does not say at its top what to set"


def listed(files: list[Path], root: Path, found: list[Manifests]) -> Iterable[str]:
    """A manifest that no kustomization names is applied by nobody."""
    used = {d.file for m in found for d in m.docs}
    for f in files:
        name = str(f.relative_to(root))
        if not load.is_kustomization(f) and name not in used and name != load.SECRETS:
            yield f"{name}: no kustomization names it"


def twins(alone: Doc, on_many: Doc) -> Iterable[str]:
    """The two evaluations differ in where they compute, and in nothing else."""
    a, b = copy.deepcopy(alone.data), copy.deepcopy(on_many.data)
    for d in (a, b):
        c = d["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
        c["args"] = [w for n, w in enumerate(c["args"]) if w != "--engine" and (n == 0 or c["args"][n - 1] != "--engine")]
    if a != b:
        yield f"{on_many.file}: differs from {alone.file} in more than --engine"


def same(ours: Manifests, theirs: Manifests) -> Iterable[str]:
    """kubectl puts together what this program does."""
    a = {(d.kind, d.name) for d in ours.docs} | {("ConfigMap", name) for name in ours.configs}
    b = {(d.kind, load.plain(d.name) if d.kind == "ConfigMap" else d.name) for d in theirs.docs}
    for kind, name in sorted(a ^ b):
        yield f"{theirs.name}: {kind}/{name} is in one of the two alone"
    namespaces = {d.name for d in theirs.of("Namespace")}
    for d in theirs.docs:
        if d.kind != "Namespace" and {d.data["metadata"].get("namespace")} != namespaces:
            yield f"{d}: is not in the namespace {', '.join(sorted(namespaces))}"


class Tally:
    """What passed and what failed."""

    def __init__(self) -> None:
        self.passed = 0
        self.failures: list[str] = []

    def add(self, lines: Iterable[str]) -> None:
        """One thing that was looked at, and what is wrong with it."""
        found = [line for line in lines if line not in self.failures]
        self.failures += found
        self.passed += not found


def look(root: Path, binary: Binary | None, tally: Tally, kubectl: bool = True) -> None:
    """Everything there is to look at below a folder."""
    root = root.resolve()
    files = load.manifest_files(root)
    before = len(tally.failures)
    for f in files:
        tally.add(headed(f, root))
        for d in load.read(f, root) if not load.is_kustomization(f) else ():
            tally.add([*schema.fits(d), *schema.text(d)])
            if "namespace" in d.data.get("metadata", {}):
                tally.add([f"{d}: names a namespace, which is the kustomization's to say"])
    if len(tally.failures) > before:
        # The rules below ask what the schemas promise.
        return
    secrets = load.read(root / load.SECRETS, root)
    tally.add(links.no_values(secrets))
    found = []
    for folder in load.variants(root):
        m = load.with_secrets(load.kustomized(folder, root), secrets)
        found.append(m)
        rules(m, binary, tally)
        theirs = load.rendered(folder, root) if kubectl else None
        if theirs is None:
            if kubectl:
                print(f"no kubectl: {m.name} is looked at without it")
            continue
        tally.add(same(m, theirs))
        rules(load.with_secrets(theirs, secrets), None, tally)
        for d in theirs.docs:
            tally.add([*schema.fits(d), *schema.text(d)])
    tally.add(listed(files, root, found))
    tally.add(twins(load.read(root / ALONE, root)[0], load.read(root / ON_MANY, root)[0]))


def rules(m: Manifests, binary: Binary | None, tally: Tally) -> None:
    """The rules of our own."""
    tally.add(pods.everything(m))
    tally.add(links.everything(m))
    if binary is not None:
        tally.add(binary.everything(m))


def main() -> int:
    """0: all is well."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("binary", nargs="?", help="a build of baton, whose help tells what it takes")
    p.add_argument("--folder", type=Path, default=HERE, help="the manifests [%(default)s]")
    args = p.parse_args()
    binary = Binary(args.binary) if args.binary else None
    tally = Tally()
    try:
        look(args.folder, binary, tally)
    except Wrong as e:
        tally.add([str(e)])
    for missing in sorted(binary.missing) if binary else ():
        print(f"not in this build: {missing}")
    for line in tally.failures:
        print(line)
    print(f"{tally.passed} passed, {len(tally.failures)} failed")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
