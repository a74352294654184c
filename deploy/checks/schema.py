"""Manifests against the schemas of Kubernetes, which come with the package `kubernetes-validate`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]

from .load import Doc

# The oldest version that has all that is used, and the newest one that the package knows.
VERSIONS = ("1.30", kubernetes_validate.latest_version())

# The schemas call these text.
QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
CRON = re.compile(r"([\d*/,-]+ ){4}[\d*/,-]+")
WORDS = {
    "concurrencyPolicy": {"Allow", "Forbid", "Replace"},
    "fsGroupChangePolicy": {"Always", "OnRootMismatch"},
    "podManagementPolicy": {"OrderedReady", "Parallel"},
    "protocol": {"TCP", "UDP", "SCTP"},
    "restartPolicy": {"Always", "OnFailure", "Never"},
    "scheme": {"HTTP", "HTTPS"},
    "sessionAffinity": {"ClientIP", "None"},
    "unhealthyPodEvictionPolicy": {"AlwaysAllow", "IfHealthyBudget"},
    "whenDeleted": {"Retain", "Delete"},
    "whenScaled": {"Retain", "Delete"},
    "whenUnsatisfiable": {"DoNotSchedule", "ScheduleAnyway"},
}


def fits(doc: Doc) -> Iterable[str]:
    """Every field is known, of the right type, and nothing that must be there is missing."""
    for version in VERSIONS:
        said = _against(json.dumps(doc.data, sort_keys=True), version)
        if said is not None:
            yield f"{doc}: Kubernetes {version}: {said}"


@cache
def _against(text: str, version: str) -> str | None:
    """What one version says of a document. Both kustomizations hold most of them, so each is asked about once."""
    try:
        kubernetes_validate.validate(json.loads(text), version, strict=True)
    except kubernetes_validate.ValidationError as e:
        return f"{'.'.join(str(p) for p in e.path)}: {e.message}"
    except kubernetes_validate.SchemaNotFoundError as e:
        return str(e.message)
    except KeyError as e:
        return f"has no {e.args[0]}"
    return None


def text(doc: Doc) -> Iterable[str]:
    """What the schemas call text, and the API server looks at more closely."""
    if not NAME.fullmatch(doc.name):
        yield f"{doc}: {doc.name!r} is no name"
    for path, key, value in _walk(doc.data, ""):
        if value is None:
            yield f"{doc}: {path} has nothing behind it"
        if key in WORDS and value not in WORDS[key]:
            yield f"{doc}: {path}: {value!r} is none of {sorted(WORDS[key])}"
        if key == "schedule" and not CRON.fullmatch(str(value)):
            yield f"{doc}: {path}: {value!r} is no schedule"
        if re.search(r"resources\.(requests|limits)\.\w|sizeLimit$", path) and not QUANTITY.fullmatch(str(value)):
            yield f"{doc}: {path}: {value!r} is no quantity"


def _walk(value: Any, path: str) -> Iterator[tuple[str, str, Any]]:
    """Every value that is no list and no mapping, with its path and its key."""
    if isinstance(value, dict):
        for key, v in value.items():
            yield from _walk(v, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for n, v in enumerate(value):
            yield from _walk(v, f"{path}.{n}")
    else:
        yield path, path.rsplit(".", 1)[-1], value
