"""Manifests as they lie in files, and as a kustomization puts them together."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

KUSTOMIZATION = "kustomization.yml"
SECRETS = "secrets.example.yml"
# What a kustomization here may say: what `kustomized` below understands.
KNOWN = {"apiVersion", "kind", "namespace", "resources", "configMapGenerator", "images"}


class Wrong(Exception):
    """A file that cannot be read."""


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice, of which others silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(k, deep=True) for k, _ in node.value]
        twice = sorted({str(k) for k in keys if keys.count(k) > 1})
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice[0]} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


@dataclass
class Doc:
    """A document, and the file that it stands in."""

    file: str
    data: Json

    @property
    def kind(self) -> str:
        return str(self.data.get("kind", ""))

    @property
    def name(self) -> str:
        return str(self.data.get("metadata", {}).get("name", ""))

    def __str__(self) -> str:
        return f"{self.file}: {self.kind}/{self.name}"


@dataclass
class Container:
    """A container and the pod template that it stands in."""

    pod: Pod
    data: Json

    def __str__(self) -> str:
        return f"{self.pod} / {self.data.get('name', '?')}"

    @property
    def args(self) -> list[str]:
        return [str(a) for a in self.data.get("args", [])]

    @property
    def ports(self) -> dict[str, int]:
        """Numbers by name; one without a name goes by its number."""
        return {str(p.get("name", p["containerPort"])): int(p["containerPort"]) for p in self.data.get("ports", [])}


@dataclass
class Pod:
    """The pod template of a workload."""

    doc: Doc
    spec: Json
    labels: dict[str, str]

    def __str__(self) -> str:
        return str(self.doc)

    @property
    def lasting(self) -> bool:
        """It does not end by itself."""
        return self.doc.kind in ("Deployment", "StatefulSet", "DaemonSet")

    @property
    def containers(self) -> list[Container]:
        return [Container(self, c) for c in [*self.spec.get("initContainers", []), *self.spec.get("containers", [])]]

    @property
    def ports(self) -> dict[str, int]:
        return {name: port for c in self.containers for name, port in c.ports.items()}

    @property
    def component(self) -> str:
        return self.labels.get("app.kubernetes.io/component", self.doc.name)


@dataclass
class Manifests:
    """All that goes to a cluster together."""

    name: str
    docs: list[Doc]
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    secrets: dict[str, set[str]] = field(default_factory=dict)

    def of(self, *kinds: str) -> list[Doc]:
        return [d for d in self.docs if d.kind in kinds]

    def pods(self) -> list[Pod]:
        return [p for d in self.docs for p in template(d)]

    def selected(self, labels: dict[str, str]) -> list[Pod]:
        """The pods that have all of these labels."""
        return [p for p in self.pods() if labels.items() <= p.labels.items()]


def template(doc: Doc) -> Iterator[Pod]:
    """The pod template of a document that has one."""
    spec = doc.data.get("spec", {})
    if doc.kind == "CronJob":
        spec = spec.get("jobTemplate", {}).get("spec", {})
    t = spec.get("template")
    if doc.kind in ("CronJob", "Job", "Deployment", "StatefulSet", "DaemonSet") and t:
        yield Pod(doc, t.get("spec", {}), t.get("metadata", {}).get("labels", {}))


@cache
def parse(text: str, file: str) -> tuple[Doc, ...]:
    """The documents of a text, which nobody changes: a file is part of several kustomizations."""
    try:
        return tuple(Doc(file, d) for d in yaml.load_all(text, _Loader) if d)
    except yaml.YAMLError as e:
        raise Wrong(f"{file}: {e}") from e


def manifest_files(root: Path) -> list[Path]:
    """Every YAML below a folder."""
    return sorted(p for p in root.rglob("*") if p.suffix in (".yml", ".yaml") and p.is_file())


def read(path: Path, root: Path) -> tuple[Doc, ...]:
    """The documents of a file."""
    return parse(path.read_text(encoding="utf-8"), str(path.relative_to(root)))


def is_kustomization(path: Path) -> bool:
    """It says what belongs together, and goes to no cluster."""
    return path.name == KUSTOMIZATION


def kustomized(folder: Path, root: Path) -> Manifests:
    """What a kustomization puts together, with ConfigMaps under the names that the files use."""
    out = Manifests(str(folder.relative_to(root)), [])
    k = read(folder / KUSTOMIZATION, root)[0].data
    unknown = sorted(set(k) - KNOWN)
    if unknown:
        raise Wrong(f"{folder.relative_to(root)}/{KUSTOMIZATION}: {unknown[0]} is not understood here")
    for resource in k.get("resources", []):
        path = (folder / resource).resolve()
        if path.is_dir():
            inner = kustomized(path, root)
            out.docs += inner.docs
            out.configs |= inner.configs
        elif path.is_file():
            out.docs += read(path, root)
        else:
            raise Wrong(f"{folder.relative_to(root)}/{KUSTOMIZATION}: {resource} is not there")
    for g in k.get("configMapGenerator", []):
        out.configs[g["name"]] = dict(_generated(g, folder))
    for d in out.of("ConfigMap"):
        out.configs[d.name] = {key: str(v) for key, v in d.data.get("data", {}).items()}
    return out


def _generated(generator: Json, folder: Path) -> Iterator[tuple[str, str]]:
    lines = list(generator.get("literals", []))
    for f in generator.get("envs", []):
        lines += [line for line in (folder / f).read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    for line in lines:
        key, _, value = line.partition("=")
        yield key, value
    for f in generator.get("files", []):
        yield Path(f).name, (folder / f).read_text(encoding="utf-8")


def variants(root: Path) -> list[Path]:
    """The folders that are applied: kustomizations that are part of no other one."""
    folders = {p.parent.resolve() for p in manifest_files(root) if is_kustomization(p)}
    parts = {(f / r).resolve() for f in folders for r in read(f / KUSTOMIZATION, root.resolve())[0].data.get("resources", [])}
    return sorted(folders - parts)


def with_secrets(m: Manifests, secrets: Sequence[Doc]) -> Manifests:
    """The same, beside the Secrets that are made by hand."""
    m.secrets = {d.name: {*d.data.get("stringData", {}), *d.data.get("data", {})} for d in [*secrets, *m.of("Secret")]}
    return m


def rendered(folder: Path, root: Path) -> Manifests | None:
    """What kubectl makes of a kustomization; `None` where there is no kubectl."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        return None
    done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, timeout=120)
    name = f"kubectl kustomize {folder.relative_to(root)}"
    if done.returncode != 0 or done.stderr:
        raise Wrong(f"{name}: {(done.stderr or done.stdout).strip()}")
    out = Manifests(name, list(parse(done.stdout, name)))
    for d in out.of("ConfigMap"):
        out.configs[d.name] = {key: str(v) for key, v in d.data.get("data", {}).items()}
    return out


def plain(name: str) -> str:
    """A generated name without its digest."""
    return re.sub(r"-[a-z0-9]{10}$", "", name)
