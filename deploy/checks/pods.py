"""Rules of a pod: what it may do, what it may take, and how it is told to be well."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .load import Container, Manifests, Pod

SIZES = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def size(text: object) -> int:
    """Bytes of a size, of Kubernetes or of Baton."""
    m = re.fullmatch(r"(\d+) ?([A-Za-z]*)", str(text))
    if not m or (m[2] and m[2] not in SIZES):
        raise ValueError(f"{text!r} is no size in Ki, Mi, Gi or Ti")
    return int(m[1]) * SIZES.get(m[2], 1)


def image(c: Container) -> Iterable[str]:
    """A tag that moves makes two copies run two programs."""
    name = str(c.data.get("image", ""))
    tag = name.rsplit("/", 1)[-1].partition(":")[2]
    if "@sha256:" not in name and tag in ("", "latest"):
        yield f"{c}: the image {name!r} has no tag of its own"


def resources(c: Container) -> Iterable[str]:
    """Memory without a limit takes the node down, and the number of threads follows the limit of processor time."""
    given = c.data.get("resources", {})
    for side in ("requests", "limits"):
        for what in ("cpu", "memory"):
            if what not in given.get(side, {}):
                yield f"{c}: no {what} in resources.{side}"


def confined(c: Container) -> Iterable[str]:
    """No way to more rights, and nothing to write to but volumes."""
    s = c.data.get("securityContext", {})
    if s.get("allowPrivilegeEscalation") is not False:
        yield f"{c}: allowPrivilegeEscalation is not false"
    if s.get("readOnlyRootFilesystem") is not True:
        yield f"{c}: readOnlyRootFilesystem is not true"
    if s.get("capabilities") != {"drop": ["ALL"]}:
        yield f"{c}: not exactly all capabilities are dropped"
    if s.get("privileged"):
        yield f"{c}: is privileged"


def unprivileged(p: Pod) -> Iterable[str]:
    """Not root, nothing of the node, no token of the Kubernetes API."""
    s = p.spec.get("securityContext", {})
    if s.get("runAsNonRoot") is not True or not s.get("runAsUser"):
        yield f"{p}: runs as root, or may"
    if s.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield f"{p}: the seccomp profile is not RuntimeDefault"
    if p.spec.get("automountServiceAccountToken") is not False:
        yield f"{p}: automountServiceAccountToken is not false"
    for what in ("hostNetwork", "hostPID", "hostIPC"):
        if p.spec.get(what):
            yield f"{p}: {what} is set"
    for v in p.spec.get("volumes", []):
        if "hostPath" in v:
            yield f"{p}: the volume {v['name']} is a folder of the node"


def accounts(m: Manifests) -> Iterable[str]:
    """A pod's account is there, and mounts no token either."""
    closed = {d.name for d in m.of("ServiceAccount") if d.data.get("automountServiceAccountToken") is False}
    for p in m.pods():
        if p.spec.get("serviceAccountName") not in closed:
            yield f"{p}: its service account {p.spec.get('serviceAccountName')!r} is not there, or mounts a token"


def probes(p: Pod) -> Iterable[str]:
    """What stays must be told from what hangs; a port that is probed is one of the container."""
    for c in p.containers:
        for kind in ("readinessProbe", "livenessProbe"):
            if p.lasting and kind not in c.data:
                yield f"{c}: no {kind}"
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = c.data.get(kind, {})
            port = probe.get("httpGet", probe.get("tcpSocket", probe.get("grpc", {}))).get("port")
            if probe and port not in c.ports and port not in c.ports.values():
                yield f"{c}: {kind} asks port {port!r}, which the container does not have"


def volumes(p: Pod) -> Iterable[str]:
    """What is mounted is there, what is there is mounted, and what lies on the node has a bound."""
    claims = p.doc.data.get("spec", {}).get("volumeClaimTemplates", [])
    names = [v["name"] for v in p.spec.get("volumes", [])] + [c["metadata"]["name"] for c in claims]
    mounts = [(c, mount) for c in p.containers for mount in c.data.get("volumeMounts", [])]
    for c, mount in mounts:
        if mount["name"] not in names:
            yield f"{c}: mounts {mount['name']}, which is no volume of the pod"
    for name in names:
        if names.count(name) > 1:
            yield f"{p}: {names.count(name)} volumes have the name {name}"
        if name not in [mount["name"] for _, mount in mounts]:
            yield f"{p}: nothing mounts the volume {name}"
    for c in p.containers:
        paths = [mount["mountPath"] for mount in c.data.get("volumeMounts", [])]
        if len(paths) != len(set(paths)):
            yield f"{c}: two volumes are mounted at one path"
        if "/tmp" not in paths:
            yield f"{c}: has no /tmp that can be written"
    for v in p.spec.get("volumes", []):
        if "emptyDir" in v and not v["emptyDir"].get("sizeLimit"):
            yield f"{p}: the volume {v['name']} has no sizeLimit"
    room = sum(size(v["emptyDir"].get("sizeLimit", 0)) for v in p.spec.get("volumes", []) if "emptyDir" in v)
    for c in p.containers:
        limit = c.data.get("resources", {}).get("limits", {}).get("ephemeral-storage")
        if limit is not None and size(limit) <= room:
            yield f"{c}: ephemeral-storage of {limit} is less than its volumes may take"


def memory(c: Container) -> Iterable[str]:
    """What the engine may take is less than the container has."""
    args = c.args
    if "--memory" in args:
        engine, limit = args[args.index("--memory") + 1], c.data.get("resources", {}).get("limits", {}).get("memory", "0")
        if size(engine) >= size(limit):
            yield f"{c}: --memory {engine} leaves nothing of {limit}"


def slots(c: Container) -> Iterable[str]:
    """As many tasks at once as there are cores for them."""
    args = c.args
    if "--slots" in args:
        cores = str(c.data.get("resources", {}).get("limits", {}).get("cpu"))
        if args[args.index("--slots") + 1] != cores:
            yield f"{c}: --slots {args[args.index('--slots') + 1]}, and the limit of cpu is {cores}"


def ends(p: Pod) -> Iterable[str]:
    """A job that hangs does not hang for ever, and does not run beside the next one."""
    if p.doc.kind != "CronJob":
        return
    spec = p.doc.data["spec"]
    if spec.get("concurrencyPolicy") != "Forbid":
        yield f"{p}: concurrencyPolicy is not Forbid"
    if spec.get("timeZone") != "Etc/UTC":
        yield f"{p}: the time zone is not Etc/UTC, as Baton's days are"
    if not spec["jobTemplate"]["spec"].get("activeDeadlineSeconds"):
        yield f"{p}: has no activeDeadlineSeconds"


def everything(m: Manifests) -> Iterable[str]:
    yield from accounts(m)
    for p in m.pods():
        for of_pod in (unprivileged, probes, volumes, ends):
            yield from of_pod(p)
        for c in p.containers:
            for of_container in (image, resources, confined, memory, slots):
                yield from of_container(c)
