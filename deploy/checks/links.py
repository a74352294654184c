"""What one manifest says of another: keys of ConfigMaps and Secrets, claims, selectors, ports, and who reaches whom."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .load import Container, Doc, Json, Manifests, Pod, plain
from .pods import size


def unique(m: Manifests) -> Iterable[str]:
    """Two of a kind and name would replace each other."""
    for (kind, name), n in Counter((d.kind, d.name) for d in m.docs).items():
        if n > 1:
            yield f"{m.name}: {n} are {kind}/{name}"


def keys(m: Manifests) -> Iterable[str]:
    """Every key of a ConfigMap or Secret that is spoken of is there."""
    for p in m.pods():
        for what, name, key in _referred(p):
            have = m.configs if what == "ConfigMap" else m.secrets
            if name not in have:
                yield f"{p}: the {what} {name} is not there"
            elif key is not None and key not in have[name]:
                yield f"{p}: the {what} {name} has no key {key}"


def _referred(p: Pod) -> Iterator[tuple[str, str, str | None]]:
    for c in p.containers:
        for e in c.data.get("envFrom", []):
            if "configMapRef" in e:
                yield "ConfigMap", e["configMapRef"]["name"], None
            if "secretRef" in e:
                yield "Secret", e["secretRef"]["name"], None
        for e in c.data.get("env", []):
            source = e.get("valueFrom", {})
            if "configMapKeyRef" in source:
                yield "ConfigMap", source["configMapKeyRef"]["name"], source["configMapKeyRef"]["key"]
            if "secretKeyRef" in source:
                yield "Secret", source["secretKeyRef"]["name"], source["secretKeyRef"]["key"]
    for v in p.spec.get("volumes", []):
        if "configMap" in v:
            for key in [i["key"] for i in v["configMap"].get("items", [])] or [None]:
                yield "ConfigMap", v["configMap"]["name"], key
        if "secret" in v:
            for key in [i["key"] for i in v["secret"].get("items", [])] or [None]:
                yield "Secret", v["secret"]["secretName"], key


def variables(m: Manifests) -> Iterable[str]:
    """`$(NAME)` in an argument stays as it is where there is no such variable."""
    for p in m.pods():
        for c in p.containers:
            known = {e["name"] for e in c.data.get("env", [])}
            for e in c.data.get("envFrom", []):
                known |= set(m.configs.get(e.get("configMapRef", {}).get("name"), {}))
            for name in {n for a in c.args for n in re.findall(r"\$\((\w+)\)", a)} - known:
                yield f"{c}: nothing sets ${name}"


def _mounted(m: Manifests, c: Container) -> Iterator[str]:
    """Paths of the files that a container sees of ConfigMaps and Secrets."""
    volumes = {v["name"]: v for v in c.pod.spec.get("volumes", [])}
    for mount in c.data.get("volumeMounts", []):
        v = volumes.get(mount["name"], {})
        files: Iterable[str] = ()
        if "configMap" in v:
            files = m.configs.get(v["configMap"]["name"], {})
        if "secret" in v:
            files = m.secrets.get(v["secret"]["secretName"], set())
        yield from (f"{mount['mountPath']}/{f}" for f in files)


def configuration(m: Manifests) -> Iterable[str]:
    """Files that baton.toml names are mounted where it is read, and its limits lie below those of container and volume."""
    configs = [c for name, c in m.configs.items() if "baton-config" in (name, plain(name))]
    if len(configs) != 1:
        yield f"{m.name}: {len(configs)} ConfigMaps are baton-config"
        return
    toml = tomllib.loads(configs[0]["baton.toml"])
    for p in m.pods():
        for c in p.containers:
            command = c.args[0] if c.args else ""
            files = set(_mounted(m, c))
            if "--config" in c.args and c.args[c.args.index("--config") + 1] not in files:
                yield f"{c}: its configuration is not mounted"
            if command == "eval" and f"{c.data.get('workingDir')}/baton.toml" not in files:
                yield f"{c}: there is no baton.toml in its working folder"
            if command not in ("collect", "serve"):
                continue
            section = toml.get(command, {})
            for path in _paths(section):
                if path not in files:
                    yield f"{c}: baton.toml names {path}, which is not mounted"
            limit = c.data.get("resources", {}).get("limits", {}).get("memory", "0")
            if size(section.get("memory_limit", "1GiB")) >= size(limit):
                yield f"{c}: memory_limit of baton.toml leaves nothing of {limit}"
            for claim in p.doc.data["spec"].get("volumeClaimTemplates", []):
                room = claim["spec"]["resources"]["requests"]["storage"]
                if size(section.get("journal_limit", "4GiB")) >= size(room):
                    yield f"{c}: journal_limit of baton.toml leaves nothing of the volume's {room}"


def _paths(section: Json) -> Iterator[str]:
    """Names of files in a section of baton.toml."""
    for key, value in section.items():
        if isinstance(value, dict):
            yield from _paths(value)
        elif isinstance(value, list):
            for v in value:
                yield from _paths(v) if isinstance(v, dict) else ()
        elif key in ("token_file", "password_file", "cert", "key", "client_ca"):
            yield str(value)


def claims(m: Manifests) -> Iterable[str]:
    """A claim that a pod mounts is made."""
    made = {d.name for d in m.of("PersistentVolumeClaim")}
    for p in m.pods():
        for v in p.spec.get("volumes", []):
            name = v.get("persistentVolumeClaim", {}).get("claimName")
            if name is not None and name not in made:
                yield f"{p}: the claim {name} is not there"


def selectors(m: Manifests) -> Iterable[str]:
    """Whatever chooses pods by labels chooses some, and a workload its own."""
    for d in m.of("Service", "PodDisruptionBudget", "Deployment", "StatefulSet", "NetworkPolicy"):
        spec = d.data["spec"]
        for labels in _labels(d):
            pods = m.selected(labels)
            if not pods:
                yield f"{d}: no pod has the labels {labels}"
            if d.kind in ("Deployment", "StatefulSet") and [p.doc for p in pods] != [d]:
                yield f"{d}: its selector chooses {', '.join(str(p) for p in pods) or 'nothing'}"
        if d.kind == "StatefulSet" and spec.get("serviceName") not in [s.name for s in m.of("Service")]:
            yield f"{d}: the Service {spec.get('serviceName')} is not there"
        for constraint in spec.get("template", {}).get("spec", {}).get("topologySpreadConstraints", []):
            if constraint["labelSelector"]["matchLabels"] != spec["selector"]["matchLabels"]:
                yield f"{d}: is spread by the labels of others"


def _labels(d: Doc) -> Iterator[dict[str, str]]:
    """The labels by which a document chooses pods of its own namespace."""
    spec = d.data["spec"]
    if d.kind == "Service":
        yield spec.get("selector", {})
    elif d.kind == "NetworkPolicy":
        yield spec["podSelector"].get("matchLabels", {})
        for _, rule in _rules(d):
            yield from (peer["podSelector"].get("matchLabels", {}) for peer in _own(rule))
    else:
        yield spec["selector"]["matchLabels"]


def service_ports(m: Manifests) -> Iterable[str]:
    """A Service's port leads to a port of each of its pods, and somebody is let through."""
    opened = {(p.component, port) for d in m.of("NetworkPolicy") for _, p, port in _let_in(m, d)}
    for d in m.of("Service"):
        for p in m.selected(d.data["spec"].get("selector", {})):
            for port in d.data["spec"]["ports"]:
                number = _number(p, port.get("targetPort", port["port"]))
                if number is None:
                    yield f"{d}: {p} has no port {port.get('targetPort', port['port'])}"
                elif (p.component, number) not in opened:
                    yield f"{d}: no NetworkPolicy lets anybody reach port {number} of {p.component}"


def addresses(m: Manifests) -> Iterable[str]:
    """`NAME:PORT` in an argument is a Service with that port."""
    ports = {d.name: {p["port"] for p in d.data["spec"]["ports"]} for d in m.of("Service")}
    for p in m.pods():
        for c in p.containers:
            for a in c.args:
                found = re.fullmatch(r"(?:\w+://)?([a-z][a-z0-9-]*):(\d+)", a)
                if found and int(found[2]) not in ports.get(found[1], ()):
                    yield f"{c}: {a} is no port of a Service"


def _number(p: Pod, port: Any) -> int | None:
    """The number of a port that is named or numbered."""
    if isinstance(port, str):
        return p.ports.get(port)
    return port if port in p.ports.values() else None


def _rules(d: Doc) -> Iterator[tuple[str, Json]]:
    for side, peers in (("ingress", "from"), ("egress", "to")):
        for rule in d.data["spec"].get(side, []):
            yield side, {"peers": rule.get(peers), "ports": rule.get("ports")}


def _own(rule: Json) -> list[Json]:
    """The peers that are pods of the same namespace."""
    return [p for p in rule["peers"] or [] if "podSelector" in p and "namespaceSelector" not in p]


def _chosen(m: Manifests, selector: Json) -> list[Pod]:
    return m.selected(selector.get("matchLabels", {}))


def _let_in(m: Manifests, d: Doc) -> Iterator[tuple[Json, Pod, int]]:
    """What a policy lets in: peers, pod, port."""
    for p in _chosen(m, d.data["spec"]["podSelector"]):
        for side, rule in _rules(d):
            for port in rule["ports"] or []:
                number = _number(p, port["port"])
                if side == "ingress" and number is not None:
                    yield rule, p, number


def policies(m: Manifests) -> Iterable[str]:
    """Nothing is open that is not named, what is named is there, and what one side may send the other may take."""
    closed = [d for d in m.of("NetworkPolicy") if d.data["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}]
    if not closed:
        yield f"{m.name}: no NetworkPolicy closes everything"
    sent: set[tuple[str, str, int]] = set()
    taken: set[tuple[str, str, int]] = set()
    for d in m.of("NetworkPolicy"):
        spec = d.data["spec"]
        types = spec.get("policyTypes", [])
        for side in ("ingress", "egress"):
            if side in spec and side.capitalize() not in types:
                yield f"{d}: has {side}, but not among its policyTypes"
        if any(
            "matchExpressions" in s for s in (spec["podSelector"], *(p["podSelector"] for _, r in _rules(d) for p in _own(r)))
        ):
            yield f"{d}: matchExpressions are not understood here"
        for side, rule in _rules(d):
            if not rule["peers"] or not rule["ports"]:
                yield f"{d}: {side} is open to everybody or on every port"
                continue
            if any(peer == {} or peer.get("namespaceSelector") == {} for peer in rule["peers"]):
                yield f"{d}: {side} is open to every namespace"
            mine = _chosen(m, spec["podSelector"])
            theirs = [p for peer in _own(rule) for p in _chosen(m, peer["podSelector"])]
            for port in rule["ports"]:
                for p in mine if side == "ingress" else theirs:
                    number = _number(p, port["port"])
                    if number is None:
                        yield f"{d}: {port['port']} is no port of {p}"
                        continue
                    if side == "ingress":
                        taken |= {(a.component, p.component, number) for a in theirs}
                    else:
                        sent |= {(a.component, p.component, number) for a in mine}
    for a, b, port in sorted(sent - taken):
        yield f"{m.name}: {a} may send to port {port} of {b}, which does not take it"
    for a, b, port in sorted(taken - sent):
        yield f"{m.name}: {b} takes port {port} from {a}, which may not send there"


def no_values(secrets: Sequence[Doc]) -> Iterable[str]:
    """A Secret of the repository holds no secret, not even a made-up one that somebody could leave in."""
    for d in secrets:
        for key, value in {**d.data.get("stringData", {}), **d.data.get("data", {})}.items():
            if value != "":
                yield f"{d}: the key {key} has a value"


def everything(m: Manifests) -> Iterable[str]:
    for rule in (unique, keys, variables, configuration, claims, selectors, service_ports, addresses, policies):
        yield from rule(m)
    if m.of("Secret"):
        yield f"{m.name}: a Secret is part of it"
