"""The commands of the manifests, against the help of a binary."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from .load import Container, Manifests

# What is in a build with the feature `cluster` alone.
FEATURE = "cluster"
ITS_FLAGS = {("eval", "--engine")}


class Binary:
    """A build of Baton."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.missing: set[str] = set()
        self.said: dict[tuple[str, ...], str | None] = {}

    def help(self, words: tuple[str, ...]) -> str | None:
        """The help of a subcommand; `None` where there is no such one."""
        if words not in self.said:
            done = subprocess.run([self.path, *words, "--help"], capture_output=True, text=True, timeout=60)
            self.said[words] = done.stdout if done.returncode == 0 else None
        return self.said[words]

    def flags(self, words: tuple[str, ...]) -> dict[str, bool] | None:
        """The flags of a subcommand, and whether each takes a value."""
        text = self.help(words)
        if text is None:
            return None
        out: dict[str, bool] = {}
        for short, long, value in re.findall(r"^ +(?:(-\w), )?(--[a-z][a-z-]*)( <[^>]+>)?", text, re.M):
            out[long] = bool(value)
            if short:
                out[short] = bool(value)
        return out

    def command(self, c: Container) -> Iterable[str]:
        """Every word of a command is one that the binary takes."""
        if c.data.get("command") != ["baton"]:
            yield f"{c}: the command is not baton"
            return
        args = c.args
        n = next((i for i, a in enumerate(args) if a.startswith("-")), len(args))
        words = tuple(args[:n])
        known = self.flags(words)
        if known is None:
            if words[:1] == (FEATURE,):
                self.missing.add(" ".join(words))
            else:
                yield f"{c}: there is no `baton {' '.join(words)}`"
            return
        rest = args[n:]
        while rest:
            flag, equals, _ = rest.pop(0).partition("=")
            if flag not in known:
                if (words[0], flag) not in ITS_FLAGS or self.help((FEATURE,)) is not None:
                    yield f"{c}: `baton {' '.join(words)}` has no {flag}"
                    return
                self.missing.add(f"{words[0]} {flag}")
                known[flag] = True
            if known[flag] and not equals:
                if not rest:
                    yield f"{c}: {flag} needs a value"
                    return
                rest.pop(0)
            elif equals and not known[flag]:
                yield f"{c}: {flag} takes no value"

    def configuration(self, m: Manifests) -> Iterable[str]:
        """The binary reads each configuration."""
        for config in m.configs.values():
            for name, text in config.items():
                if not name.endswith(".toml"):
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder, name)
                    path.write_text(text, encoding="utf-8")
                    args = [self.path, "--config", str(path), "measures"]
                    done = subprocess.run(args, capture_output=True, text=True, timeout=60)
                if done.returncode != 0:
                    yield f"{m.name}: {done.stderr.strip().replace(f'{folder}/', '')}"

    def everything(self, m: Manifests) -> Iterable[str]:
        for p in m.pods():
            for c in p.containers:
                yield from self.command(c)
        yield from self.configuration(m)
