"""The manifests pass as they are, and each fault that somebody could make is caught.

python -B -m unittest discover -s deploy                               # without the commands
BATON=target/debug/baton python -B -m unittest discover -s deploy
"""

import os
import shutil
import tempfile
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import check
from checks import load
from checks.commands import Binary

# What is said then; the file; what stands in it, and what somebody could put there.
Fault = tuple[str, str, str, str]

SCHEMAS: list[Fault] = [
    ("'replica' was unexpected", "base/collector.yml", "  replicas: 2", "  replica: 2"),
    ("is not of type 'integer'", "base/collector.yml", "  replicas: 2", "  replicas: two"),
    ("Couldn't find schema", "base/serve.yml", "apiVersion: apps/v1", "apiVersion: apps/v9"),
    ("has no kind", "base/serve.yml", "kind: Deployment\n", ""),
    ("'name' is a required property", "cluster/executor.yml", "- name: scratch\n          emptyDir:", "- emptyDir:"),
    ("is none of", "base/keep.yml", "concurrencyPolicy: Forbid", "concurrencyPolicy: Forbidden"),
    ("is no schedule", "base/keep.yml", '"15 * * * *"', '"15 * * *"'),
    ("is no quantity", "base/serve.yml", "memory: 4Gi", "memory: 4GiB"),
    ("stringData has nothing behind it", "secrets.example.yml", '  token: ""\n', ""),
    ("is no name", "base/volume.yml", "name: baton-data", "name: Baton_data"),
    ("the key replicas stands twice", "base/serve.yml", "  replicas: 1", "  replicas: 1\n  replicas: 3"),
    ("expected", "base/serve.yml", "spec:", "spec: ["),
]

PODS: list[Fault] = [
    ("has no tag of its own", "base/collector.yml", "baton:0.1.0", "baton:latest"),
    ("has no tag of its own", "base/collector.yml", "baton:0.1.0", "baton"),
    (
        "no memory in resources.requests",
        "base/collector.yml",
        "              memory: 1536Mi\n            limits",
        "            limits",
    ),
    ("allowPrivilegeEscalation", "base/serve.yml", "allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true"),
    ("readOnlyRootFilesystem", "base/serve.yml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"),
    ("all capabilities", "base/serve.yml", 'drop: ["ALL"]', 'drop: ["NET_RAW"]'),
    ("runs as root", "base/serve.yml", "runAsNonRoot: true", "runAsNonRoot: false"),
    ("runs as root", "base/serve.yml", "runAsUser: 10001", "runAsUser: 0"),
    ("seccomp", "base/serve.yml", "type: RuntimeDefault", "type: Unconfined"),
    ("automountServiceAccountToken", "base/serve.yml", "ServiceAccountToken: false", "ServiceAccountToken: true"),
    ("hostNetwork is set", "base/serve.yml", "      automount", "      hostNetwork: true\n      automount"),
    ("'baton-served' is not there", "base/serve.yml", "AccountName: baton-serve", "AccountName: baton-served"),
    ("has no sizeLimit", "base/serve.yml", "            sizeLimit: 20Gi", "            medium: Memory"),
    ("is less than its volumes may take", "base/serve.yml", "sizeLimit: 20Gi", "sizeLimit: 30Gi"),
    ("has no /tmp", "base/serve.yml", "mountPath: /tmp", "mountPath: /temp"),
    ("mounts temp, which is no volume", "base/serve.yml", "            - name: tmp", "            - name: temp"),
    ("no readinessProbe", "cluster/scheduler.yml", "readinessProbe:", "startupProbe:"),
    ("asks port 'web'", "base/collector.yml", "              port: http", "              port: web"),
    ("--slots 4, and the limit of cpu is 2", "cluster/executor.yml", '- "2"', '- "4"'),
    ("leaves nothing of 6Gi", "cluster/executor.yml", "- 4GiB", "- 6GiB"),
    ("activeDeadlineSeconds", "base/keep.yml", "      activeDeadlineSeconds: 3300\n", ""),
    ("time zone", "base/keep.yml", "timeZone: Etc/UTC", "timeZone: Europe/Vienna"),
]

LINKS: list[Fault] = [
    (
        "the Secret baton-tokens is not there",
        "base/collector.yml",
        "secretName: baton-collector\n",
        "secretName: baton-tokens\n",
    ),
    ("names /run/secrets/baton-sql/grafana, which is not", "secrets.example.yml", "  grafana: ", "  graphana: "),
    ("the key token has a value", "secrets.example.yml", '  token: ""', '  token: "letmein"'),
    ("nothing sets $BATON_STORE", "base/store.env", "BATON_STORE=", "STORE="),
    ("baton-settings is not there", "base/serve.yml", "            name: baton-config", "            name: baton-settings"),
    ("memory_limit of baton.toml leaves", "base/baton.toml", 'memory_limit = "2GiB"', 'memory_limit = "4GiB"'),
    ("journal_limit of baton.toml leaves", "base/baton.toml", 'journal_limit = "8GiB"', 'journal_limit = "10GiB"'),
    ("its configuration is not mounted", "base/collector.yml", "/etc/baton/baton.toml", "/etc/baton.toml"),
    ("no baton.toml in its working folder", "baton-eval.yaml", "workingDir: /etc/baton", "workingDir: /data"),
    ("the claim baton-pages is not there", "baton-eval.yaml", "claimName: baton-data", "claimName: baton-pages"),
    ("baton-all is not there", "base/collector.yml", "serviceName: baton-collector-copies", "serviceName: baton-all"),
    ("has no port web", "base/collector.yml", "      targetPort: http", "      targetPort: web"),
    ("50050 is no port of", "cluster/scheduler.yml", "containerPort: 50050", "containerPort: 50060"),
    ("baton-scheduler:50050 is no port of a Service", "cluster/scheduler.yml", "      port: 50050", "      port: 50060"),
    ("its selector chooses", "base/serve.yml", "component: serve\n  template", "component: collector\n  template"),
    (
        "is spread by the labels of others",
        "base/serve.yml",
        "component: serve\n      containers",
        "component: eval\n      containers",
    ),
    ("2 are ServiceAccount/baton-keep", "base/accounts.yml", "name: baton-eval", "name: baton-keep"),
]

NETWORK: list[Fault] = [
    ("no NetworkPolicy closes everything", "base/network.yml", "policyTypes: [Ingress, Egress]", "policyTypes: [Egress]"),
    ("5433 is no port of", "base/network.yml", "        - port: 5432", "        - port: 5433"),
    ("no NetworkPolicy lets anybody reach port 4317", "base/network.yml", "        - port: 4317", "        - port: 4318"),
    ("on every port", "base/network.yml", "      ports:\n        - port: 5432\n          protocol: TCP\n", ""),
    (
        "to every namespace",
        "base/network.yml",
        "Selector:\n            matchLabels:\n              baton-readers: allowed",
        "Selector: {}",
    ),
    ("not among its policyTypes", "base/network.yml", "  policyTypes: [Ingress]", "  policyTypes: [Egress]"),
    ("no pod has the labels", "base/network.yml", "component: serve", "component: server"),
    ("eval may send to port 50050 of scheduler, which", "cluster/network.yml", "component: eval", "component: keep"),
    ("takes port 50050 from eval, which", "cluster/network.yml", "component: eval\n  policy", "component: keep\n  policy"),
]

FILES: list[Fault] = [
    ("does not say at its top what to set", "base/volume.yml", "# Set: ", "# See "),
    ("base/volume.yml: no kustomization names it", "base/kustomization.yml", "  - volume.yml\n", ""),
    ("volumes.yml is not there", "base/kustomization.yml", "  - volume.yml\n", "  - volumes.yml\n"),
    ("image is not understood here", "kustomization.yml", "images:", "image:"),
    ("names a namespace", "base/volume.yml", "  name: baton-data", "  name: baton-data\n  namespace: other"),
    ("differs from baton-eval.yaml", "cluster/eval.yml", "--since=yesterday", "--since=7d"),
]

# What only a binary can tell.
COMMANDS: list[Fault] = [
    ("`baton serve` has no --sql", "base/serve.yml", "- --listen", "- --sql"),
    ("there is no `baton server`", "base/serve.yml", "            - serve\n", "            - server\n"),
    ("--store needs a value", "base/keep.yml", '["compact", "--store", "$(BATON_STORE)"]', '["compact", "--store"]'),
    ("--all takes no value", "base/keep.yml", '["compact", "--store", "$(BATON_STORE)"]', '["compact", "--all=yes"]'),
    ("there is no `baton compact data`", "base/keep.yml", '["compact", "--store", "$(BATON_STORE)"]', '["compact", "data"]'),
    ("the command is not baton", "base/keep.yml", 'command: ["baton"]', 'command: ["sh"]'),
    ("unknown field `visible_later`", "base/baton.toml", "visible_after", "visible_later"),
    ("no time like", "base/baton.toml", 'refresh = "60s"', 'refresh = "60"'),
]


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the manifests to spoil."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(shutil.copytree(check.HERE, Path(folder, "kubernetes")))


def failures(root: Path, binary: Binary | None = None, kubectl: bool = False) -> list[str]:
    """What is wrong below a folder."""
    tally = check.Tally()
    try:
        check.look(root, binary, tally, kubectl)
    except load.Wrong as e:
        tally.add([str(e)])
    return tally.failures


class Check(unittest.TestCase):
    def catches(self, faults: list[Fault], binary: Binary | None = None) -> None:
        for words, file, old, new in faults:
            with self.subTest(words), copied() as root:
                path = root / file
                text = path.read_text(encoding="utf-8")
                self.assertIn(old, text)
                path.write_text(text.replace(old, new, 1), encoding="utf-8")
                found = failures(root, binary)
                self.assertTrue(any(words in line for line in found), f"{words!r} is not in {found}")

    def test_all_is_well(self) -> None:
        self.assertEqual(failures(check.HERE, kubectl=True), [])

    def test_what_the_schemas_refuse_is_caught(self) -> None:
        self.catches(SCHEMAS)

    def test_what_a_pod_may_not_is_caught(self) -> None:
        self.catches(PODS)

    def test_what_does_not_fit_together_is_caught(self) -> None:
        self.catches(LINKS)

    def test_what_is_open_or_closed_by_mistake_is_caught(self) -> None:
        self.catches(NETWORK)

    def test_files_that_are_forgotten_or_differ_are_caught(self) -> None:
        self.catches(FILES)

    @unittest.skipUnless("BATON" in os.environ, "no binary")
    def test_commands_that_baton_does_not_take_are_caught(self) -> None:
        binary = Binary(os.environ["BATON"])
        self.assertEqual(failures(check.HERE, binary), [])
        self.catches(COMMANDS, binary)

    @unittest.skipUnless("BATON" in os.environ, "no binary")
    def test_what_a_build_lacks_is_told_and_what_it_has_is_looked_at(self) -> None:
        binary = Binary(os.environ["BATON"])
        if binary.help(("cluster",)) is None:
            failures(check.HERE, binary)
            self.assertLessEqual(binary.missing, {"cluster scheduler", "cluster executor", "eval --engine"})
        else:
            self.catches([("`baton eval` has no --engines", "cluster/eval.yml", '"--engine"', '"--engines"')], binary)

    @unittest.skipUnless(shutil.which("kubectl"), "no kubectl")
    def test_kubectl_has_its_say(self) -> None:
        with copied() as root:
            path = root / "cluster" / "kustomization.yml"
            path.write_text(path.read_text(encoding="utf-8") + "commonLabel: {a: b}\n", encoding="utf-8")
            with mock.patch.object(load, "KNOWN", load.KNOWN | {"commonLabel"}):
                self.assertTrue(any("kubectl" in line for line in failures(root, kubectl=True)))


if __name__ == "__main__":
    unittest.main()
