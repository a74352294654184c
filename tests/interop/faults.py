"""A proxy before an object store that does what networks and overloaded stores do, when it is told to.

    python faults.py http://127.0.0.1:9000     # before a store: prints its own address and the one it is told at
    python faults.py                           # checks itself before a store of objects.py

Told with JSON (`curl -d '{"slow": 50}' ADDRESS`), each until it is told otherwise:

    {"slow": 50}                     every answer comes 50 ms later
    {"unavailable": {"PUT": 0.2}}    a fifth of the puts is answered 503 SlowDown, and nothing was done; "*" is every kind
    {"cut": {"GET": 0.1}}            connections break: in the middle of what is got, in the middle of what is put, or after
                                     it was put and before the answer
    {"lagging": 5}                   listings show for 5 s what was deleted, and not yet what was put
    {"seed": 7}                      chance begins anew; the nth request of a kind meets the same fate each time

A GET of the same address tells the faults, and requests and bytes by kind, as stores bill them. `Proxy` does all this from
Python. Objects are named by path (`/bucket/key`). What lags is only known of objects that went through the proxy. HTTP is
passed on as it came, with the `host` that was signed.
"""

import asyncio
import collections
import concurrent.futures
import contextlib
import email.utils
import http.client
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator, Callable, Iterator

import objects

KINDS = ("PUT", "COPY", "POST", "LIST", "GET", "HEAD", "DELETE", "OTHER")
NS = "http://s3.amazonaws.com/doc/2006-03-01/"
SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message>'
    b"<RequestId>0000000000000001</RequestId><HostId>faults</HostId></Error>"
)
PIECE = 1 << 16


class Head:
    """The head of a request or an answer, kept as it came."""

    def __init__(self, raw: bytes):
        self.raw = raw
        first, *lines = raw.decode("latin-1").split("\r\n")
        self.first = first.split(" ", 2)
        self.headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
        self.chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        self.length = int(self.headers.get("content-length", 0))

    def without(self, name: str) -> bytes:
        return re.sub(rb"(?im)^" + name.encode() + rb":[^\r]*\r\n", b"", self.raw)

    @property
    def closes(self) -> bool:
        return self.headers.get("connection", "").lower() == "close"


class Request(Head):
    def __init__(self, raw: bytes):
        super().__init__(raw)
        self.method, target = self.first[:2]
        path, _, query = target.partition("?")
        self.query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        self.bucket, _, self.key = urllib.parse.unquote(path.lstrip("/")).partition("/")
        self.kind = self.method if self.method in KINDS else "OTHER"
        if self.method == "PUT" and "x-amz-copy-source" in self.headers:
            self.kind = "COPY"
        elif self.method == "GET" and not self.key:
            self.kind = "LIST"
        elif self.method == "POST" and "delete" in self.query:
            self.kind = "DELETE"
        # An upload in parts is an object once it is complete, and given up it never was one.
        self.puts = bool(self.key) and (
            (self.method == "PUT" and "partNumber" not in self.query) or (self.method == "POST" and "uploadId" in self.query)
        )


async def pieces(reader: asyncio.StreamReader, head: Head, to_end: bool = False) -> AsyncIterator[tuple[bytes, int]]:
    """A body as it is framed, each piece with the bytes in it that are data."""
    if head.chunked:
        size = 1
        while size:
            line = await reader.readline()
            size = int(line.split(b";")[0], 16)
            yield line + await reader.readexactly(size + 2), size
        return
    left = float("inf") if to_end else head.length
    while left:
        piece = await reader.read(int(min(PIECE, left)))
        if not piece:
            if to_end:
                return
            raise asyncio.IncompleteReadError(b"", int(left))
        left -= len(piece)
        yield piece, len(piece)


class Lag:
    """What is known of objects, for listings that are behind.

    Reads are not behind: an object that was deleted can be listed and not got.
    """

    def __init__(self):
        self.born: dict[tuple[str, str], float] = {}
        self.fields: dict[tuple[str, str], dict[str, str]] = {}
        self.died: dict[tuple[str, str], float] = {}

    def put(self, r: Request, lagging: float) -> None:
        # Before it is passed on: a listing may come in between.
        at, now = (r.bucket, r.key), time.monotonic()
        if at not in self.born:
            # What was deleted only now is listed still, and stays.
            self.born[at] = 0.0 if now - self.died.pop(at, float("-inf")) < lagging else now

    def was_put(self, r: Request, answer: Head, done: bool) -> None:
        at = (r.bucket, r.key)
        if not done and at not in self.fields:
            self.born.pop(at, None)
        elif done:
            # Only for when it was deleted; of an upload in parts the size is not known here.
            now = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
            fields = {"LastModified": now, "ETag": answer.headers.get("etag", '""'), "Size": str(r.length)}
            self.fields[at] = fields | {"StorageClass": "STANDARD"}

    def was_deleted(self, bucket: str, key: str, lagging: float) -> None:
        at = (bucket, key)
        born = self.born.pop(at, None)
        if born is not None and time.monotonic() - born >= lagging:
            self.died[at] = time.monotonic()

    def listing(self, r: Request, text: bytes, lagging: float) -> bytes:
        """A listing as it would have been a while ago."""
        now = time.monotonic()
        self.died = {at: t for at, t in self.died.items() if now - t < lagging}
        prefix, delimiter = r.query.get("prefix", ""), r.query.get("delimiter", "")
        ET.register_namespace("", NS)
        root = ET.fromstring(text)
        tag = root.tag.removesuffix("ListBucketResult")
        encoded = root.findtext(f"{tag}EncodingType") == "url"
        plain = urllib.parse.unquote_plus if encoded else str
        wire = urllib.parse.quote if encoded else str
        known = {key: now - t < lagging for (bucket, key), t in self.born.items() if bucket == r.bucket and key.startswith(prefix)}

        def only_new(folder: str) -> bool:
            inside = [new for key, new in known.items() if key.startswith(folder)]
            return bool(inside) and all(inside)

        listed, last = {}, root.findtext(f"{tag}IsTruncated") != "true"
        for e in root.findall(f"{tag}Contents"):
            root.remove(e)
            key = plain(e.findtext(f"{tag}Key"))
            if not known.get(key):
                listed[key] = e
                # Seen here and not through a put: it was there before.
                self.born.setdefault((r.bucket, key), 0.0)
                self.fields.setdefault((r.bucket, key), {c.tag.removeprefix(tag): c.text or "" for c in e if not len(c)})
        for e in root.findall(f"{tag}CommonPrefixes"):
            root.remove(e)
            folder = plain(e.findtext(f"{tag}Prefix"))
            if not only_new(folder):
                listed[folder] = e
        # Shown on the last page, wherever they belong: which page that was is not known here.
        after = r.query.get("start-after", "")
        for bucket, key in self.died if last else ():
            if bucket != r.bucket or not key.startswith(prefix) or key <= after:
                continue
            head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            folder = prefix + head + found
            if not found:
                e = ET.Element(f"{tag}Contents")
                for name, value in {**self.fields[bucket, key], "Key": wire(key)}.items():
                    ET.SubElement(e, tag + name).text = value
                listed[key] = e
            elif folder not in listed and not any(not new for k, new in known.items() if k.startswith(folder)):
                e = ET.Element(f"{tag}CommonPrefixes")
                ET.SubElement(e, f"{tag}Prefix").text = wire(folder)
                listed[folder] = e
        root.extend(listed[name] for name in sorted(listed, key=str.encode))
        count = root.find(f"{tag}KeyCount")
        if count is not None:
            count.text = str(len(listed))
        return b'<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root)


class Cut(Exception):
    """The connection is to break here."""


class Faults:
    """The proxy itself, in an event loop."""

    def __init__(self, target: str):
        host, port = target.removeprefix("http://").rstrip("/").rsplit(":", 1)
        self.target = (host, int(port))
        self.told = {"slow": 0, "unavailable": {}, "cut": {}, "lagging": 0, "seed": 1}
        self.counts = {k: dict.fromkeys(("requests", "in", "out", "unavailable", "cut", "failed"), 0) for k in KINDS}
        self.nth: collections.Counter[str] = collections.Counter()
        self.lag = Lag()

    def tell(self, told: dict) -> None:
        wrong = set(told) - set(self.told)
        for name in ("unavailable", "cut"):
            wrong |= set(told.get(name, {})) - {*KINDS, "*"}
        if wrong:
            raise ValueError(f"not known: {', '.join(sorted(wrong))}")
        self.told.update(told)
        if "seed" in told:
            self.nth.clear()

    def share(self, fault: str, kind: str) -> float:
        shares = self.told[fault]
        return shares.get(kind, shares.get("*", 0))

    async def serve(self, client: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        """A connection of a client, with one to the store of its own."""
        store = None
        try:
            while True:
                request = Request(await client.readuntil(b"\r\n\r\n"))
                count = self.counts[request.kind]
                count["requests"] += 1
                # Chance depends on nothing but the seed and the number of the request among its kind.
                self.nth[request.kind] += 1
                chance = random.Random(f"{self.told['seed']} {request.kind} {self.nth[request.kind]}")
                unavailable = chance.random() < self.share("unavailable", request.kind)
                cut = chance.random() < self.share("cut", request.kind) and chance.choice(("middle", "answer"))
                if request.headers.get("expect"):
                    out.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                if unavailable:
                    count["unavailable"] += 1
                    async for _, size in pieces(client, request):
                        count["in"] += size
                    await self.refuse(request, out)
                    continue
                if store is None or store[0].at_eof():
                    if store:
                        store[1].close()
                    store = await asyncio.open_connection(*self.target, limit=1 << 20)
                count["cut"] += bool(cut)
                if not await self.pass_on(request, client, out, store, cut, count):
                    break
        except (OSError, asyncio.IncompleteReadError, Cut):
            # Where one side is gone, the other one sees it go.
            pass
        finally:
            out.close()
            if store:
                store[1].close()

    async def refuse(self, request: Request, out: asyncio.StreamWriter) -> None:
        await asyncio.sleep(self.told["slow"] / 1000)
        head = f"HTTP/1.1 503 Slow Down\r\ncontent-type: application/xml\r\ncontent-length: {len(SLOW_DOWN)}\r\n"
        head += f"date: {email.utils.formatdate(usegmt=True)}\r\n\r\n"
        out.write(head.encode() + (b"" if request.method == "HEAD" else SLOW_DOWN))
        await out.drain()

    async def pass_on(
        self,
        request: Request,
        client: asyncio.StreamReader,
        out: asyncio.StreamWriter,
        store: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        cut: str | bool,
        count: dict[str, int],
    ) -> bool:
        """One request and its answer; false where the connection ends with it."""
        up = request.kind not in ("GET", "LIST", "HEAD")
        if request.puts:
            self.lag.put(request, self.told["lagging"])
        deleted = []
        answer, done = request, False
        try:
            store[1].write(request.without("expect"))
            body, passed = b"", 0
            async for piece, size in pieces(client, request):
                if cut == "middle" and up and passed + size > request.length // 2:
                    store[1].write(piece[: len(piece) // 2])
                    await store[1].drain()
                    raise Cut
                passed += size
                count["in"] += size
                if request.kind == "DELETE":
                    body += piece
                store[1].write(piece)
                await store[1].drain()
            if request.kind == "DELETE" and "uploadId" not in request.query:
                deleted = [request.key] if request.key else re.findall(r"(?s)<Key>(.*?)</Key>", body.decode())
            answer = Head(await store[0].readuntil(b"\r\n\r\n"))
            while answer.first[1].startswith("1"):
                answer = Head(await store[0].readuntil(b"\r\n\r\n"))
            done = answer.first[1].startswith("2")
            for key in deleted if done else ():
                plain = key if request.key else ET.fromstring(f"<k>{key}</k>").text
                self.lag.was_deleted(request.bucket, plain or "", self.told["lagging"])
        finally:
            if request.puts:
                self.lag.was_put(request, answer, done)
        count["failed"] += answer.first[1].startswith("5")
        if self.told["slow"]:
            await asyncio.sleep(self.told["slow"] / 1000)
        none = request.method == "HEAD" or answer.first[1] in ("204", "304")
        if cut and (up or none):
            # It was done, and nobody hears of it.
            raise Cut
        to_end = not none and not answer.chunked and "content-length" not in answer.headers
        if request.kind == "LIST" and done and self.told["lagging"]:
            text = b"".join([self.data(answer, piece, size) async for piece, size in pieces(store[0], answer, to_end)])
            text = self.lag.listing(request, text, self.told["lagging"])
            head = answer.without("content-length")
            head = re.sub(rb"(?im)^transfer-encoding:[^\r]*\r\n", b"", head)[:-2]
            out.write(head + f"content-length: {len(text)}\r\n\r\n".encode() + text)
            count["out"] += len(text)
        else:
            out.write(answer.raw)
            passed = 0
            # Of a chunked answer the length is not known: the first piece is half of it.
            half = 0 if answer.chunked else answer.length // 2
            async for piece, size in pieces(store[0], answer, to_end) if not none else nothing():
                if cut and passed + size > half:
                    out.write(piece[: len(piece) // 2])
                    await out.drain()
                    raise Cut
                passed += size
                count["out"] += size
                out.write(piece)
                await out.drain()
        await out.drain()
        return not (to_end or request.closes or answer.closes)

    @staticmethod
    def data(answer: Head, piece: bytes, size: int) -> bytes:
        return piece[piece.index(b"\r\n") + 2 :][:size] if answer.chunked else piece

    async def control(self, client: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            request = Request(await client.readuntil(b"\r\n\r\n"))
            status = "200 OK"
            try:
                if request.method == "POST":
                    self.tell(json.loads(await client.readexactly(request.length)))
                text = json.dumps({"faults": self.told, "counts": self.counts})
            except (ValueError, AttributeError, TypeError) as e:
                status, text = "400 Bad Request", json.dumps({"error": str(e)})
            head = (
                f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\nconnection: close\r\n\r\n"
            )
            out.write(f"{head}{text}".encode())
            await out.drain()
        out.close()

    async def run(self) -> None:
        proxy = await asyncio.start_server(self.serve, "127.0.0.1", 0, limit=1 << 20)
        control = await asyncio.start_server(self.control, "127.0.0.1", 0)
        print(*(f"http://127.0.0.1:{s.sockets[0].getsockname()[1]}" for s in (proxy, control)), flush=True)
        await asyncio.Event().wait()


async def nothing() -> AsyncIterator[tuple[bytes, int]]:
    for piece in ():
        yield piece


class Proxy:
    """A proxy in a process of its own, so that it does not wait for who sends through it."""

    def __init__(self, target: str):
        command = [sys.executable, __file__, target]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.endpoint, self.told_at = self.process.stdout.readline().split()

    def tell(self, **faults: object) -> None:
        urllib.request.urlopen(self.told_at, json.dumps(faults).encode(), timeout=10).close()

    def clear(self) -> None:
        self.tell(slow=0, unavailable={}, cut={}, lagging=0)

    def counts(self) -> dict[str, dict[str, int]]:
        """By kind: requests; bytes in and out; of the requests how many were refused, cut, or failed in the store."""
        with urllib.request.urlopen(self.told_at, timeout=10) as answer:
            return json.load(answer)["counts"]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@contextlib.contextmanager
def faults(target: str) -> Iterator[Proxy]:
    """A proxy as long as the block lasts; before a store it is started before anything is put."""
    proxy = Proxy(target)
    try:
        yield proxy
    finally:
        proxy.stop()


def check() -> None:
    """Every fault, before a store that works: it happens when it is told, as often as it is told, and not otherwise."""
    with tempfile.TemporaryDirectory() as folder, objects.objects(folder) as server, faults(server.endpoint) as proxy:
        bucket = objects.Bucket(proxy.endpoint, tries=1)
        parts = (whole, slow, unavailable, cut, lagging, speed)
        for part in parts:
            proxy.clear()
            proxy.tell(seed=1)
            print(f"{part.__name__}: {part(proxy, bucket, server.bucket)}", flush=True)


def status(work: Callable[[], object]) -> int | str:
    try:
        work()
        return 200
    except objects.Refused as e:
        return e.status
    except (OSError, http.client.HTTPException):
        return "broken"


def whole(proxy: Proxy, bucket: objects.Bucket, server: objects.Bucket) -> str:
    body = random.Random(1).randbytes(3_000_000)
    bucket.put("whole", body)
    assert bucket.get("whole") == server.get("whole") == body
    assert bucket.get("whole", range="bytes=-100") == body[-100:]
    assert status(lambda: bucket.put("whole", b"", if_none_match="*")) == 412
    assert status(lambda: bucket.ask("HEAD", "none")) == 404
    bucket.ask("PUT", "copy", x_amz_copy_source=f"/{objects.BUCKET}/whole")
    assert bucket.list() == ["copy", "whole"]
    bucket.delete("copy")
    counts = {k: (c["requests"], c["in"], c["out"]) for k, c in proxy.counts().items() if c["requests"]}
    assert counts["GET"] == (2, 0, 3_000_100), counts
    assert counts["PUT"][:2] == (2, 3_000_000), counts
    assert [counts[k][0] for k in ("COPY", "LIST", "HEAD", "DELETE")] == [1, 1, 1, 1], counts
    return "passed on, and counted"


def slow(proxy: Proxy, bucket: objects.Bucket, server: objects.Bucket) -> str:
    proxy.tell(slow=300)
    started = time.monotonic()
    bucket.list()
    took = time.monotonic() - started
    assert took > 0.3, took
    return f"a listing told to take 300 ms more takes {took * 1000:.0f} ms"


def unavailable(proxy: Proxy, bucket: objects.Bucket, server: objects.Bucket) -> str:
    seen = []
    for turn in range(2):
        proxy.tell(unavailable={"PUT": 0.2}, seed=5)
        seen.append([status(lambda n=n, turn=turn: bucket.put(f"unavailable/{turn}/{n:03}", b"x")) for n in range(200)])
    assert seen[0] == seen[1], "another fate with the same seed"
    assert set(seen[0]) == {200, 503}, set(seen[0])
    refused = seen[0].count(503)
    assert 20 <= refused <= 60, refused
    there = [f"unavailable/0/{n:03}" for n, s in enumerate(seen[0]) if s == 200]
    assert bucket.list("unavailable/0/") == there, "what was refused is there"
    assert bucket.get(there[0]) == b"x"
    return f"{refused} of 200 puts are refused, the same ones each time"


def cut(proxy: Proxy, bucket: objects.Bucket, server: objects.Bucket) -> str:
    body = random.Random(1).randbytes(300_000)
    bucket.put("cut", body)
    proxy.tell(cut={"PUT": 1, "GET": 1})
    assert status(lambda: bucket.get("cut")) == "broken"
    for n in range(20):
        assert status(lambda n=n: bucket.put(f"cut/{n:02}", body)) == "broken"
    proxy.clear()
    kept = bucket.list("cut/")
    assert 0 < len(kept) < 20, f"{len(kept)} of 20 were put"
    assert all(bucket.get(key) == body for key in kept), "half an object is there"
    return f"20 puts break, {len(kept)} of them only after the object was there whole"


def lagging(proxy: Proxy, bucket: objects.Bucket, server: objects.Bucket) -> str:
    names = [f"lag/old/{n}" for n in range(5)]
    for name in names:
        bucket.put(name, b"x")
    time.sleep(1.6)
    proxy.tell(lagging=1.5)
    bucket.put("lag/new/a & b", b"x")
    assert bucket.get("lag/new/a & b") == b"x"
    assert bucket.list("lag/") == names, "what was put now is listed"
    assert bucket.list("lag/", "/") == ["lag/old/"]
    time.sleep(1.6)
    assert bucket.list("lag/") == ["lag/new/a & b", *names]
    assert bucket.list("lag/", "/") == ["lag/new/", "lag/old/"]
    bucket.delete("lag/new/a & b")
    body = "".join(f"<Object><Key>{name}</Key></Object>" for name in names[:2])
    bucket.ask("POST", query={"delete": ""}, body=f"<Delete>{body}</Delete>".encode())
    assert status(lambda: bucket.get(names[0])) == 404
    assert bucket.list("lag/") == ["lag/new/a & b", *names], "what was deleted now is not listed"
    assert sorted(bucket.list("lag/", page=2)) == ["lag/new/a & b", *names]
    assert bucket.list("lag/", "/") == ["lag/new/", "lag/old/"]
    time.sleep(1.6)
    assert bucket.list("lag/") == names[2:]
    return "listings are 1.5 s behind, reads are not"


def speed(proxy: Proxy, bucket: objects.Bucket, server: objects.Bucket) -> str:
    said = []
    for name, through in (("directly", server), ("through it", bucket)):
        # Tries again, as a connection that was not used for a while may be gone.
        through.tries = 2
        body = bytes(8 << 20)
        rates = []
        for work, times, per in (
            (lambda n, b=through: b.put(f"speed/{n}", b"x" * 1000), 400, 1),
            (lambda n, b=through: b.get(f"speed/{n % 400}"), 800, 1),
            (lambda n, b=through, body=body: b.put("speed/big", body), 8, 8.4),
            (lambda n, b=through: b.get("speed/big"), 16, 8.4),
        ):
            started = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                list(pool.map(work, range(times)))
            rates.append(times * per / (time.monotonic() - started))
        puts, gets, up, down = rates
        said.append(f"{name} {puts:.0f} puts/s, {gets:.0f} gets/s, {up:.0f} MB/s up, {down:.0f} MB/s down")
    return "; ".join(said)


def main() -> None:
    if len(sys.argv) > 2:
        sys.exit(__doc__.strip())
    if len(sys.argv) == 2:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(Faults(sys.argv[1]).run())
    else:
        # Told to end, it ends what it started.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        check()


if __name__ == "__main__":
    main()
