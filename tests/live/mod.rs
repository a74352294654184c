//! The live collector as a process: what it acknowledges is kept, whatever happens to it.

mod answers;
mod durability;
mod examples;
mod exporters;
mod objects;
mod scores;
mod security;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;

use super::{baton, run, stdout};

/// A collector that runs; killed when dropped.
struct Collector {
    child: Child,
    http: SocketAddr,
    grpc: SocketAddr,
    said: Arc<Mutex<String>>,
}

/// How to start one.
struct Start<'a> {
    store: &'a Path,
    /// Of `baton.toml`.
    config: &'a str,
    http: SocketAddr,
    grpc: SocketAddr,
    /// A store that is no folder.
    place: Option<&'a str>,
    journal: Option<&'a Path>,
    env: &'a [(&'a str, &'a str)],
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// An address that is free at the moment.
fn free() -> SocketAddr {
    TcpListener::bind(any()).and_then(|l| l.local_addr()).expect("a free port")
}

impl<'a> Start<'a> {
    fn at(store: &'a Path) -> Self {
        Self {
            store,
            config: "[collect]\nvisible_after = \"1s\"\n",
            http: any(),
            grpc: any(),
            place: None,
            journal: None,
            env: &[],
        }
    }

    fn spawn(&self) -> Child {
        let config = self.store.with_extension("toml");
        std::fs::write(&config, self.config).expect("a configuration");
        let (http, grpc) = (self.http.to_string(), self.grpc.to_string());
        let store = self.place.unwrap_or(self.store.to_str().expect("a name"));
        let config = config.to_str().expect("a name");
        let mut args =
            vec!["--config", config, "collect", "--store", store, "--http", &http, "--grpc", &grpc];
        if let Some(j) = self.journal {
            args.extend(["--journal", j.to_str().expect("a name")]);
        }
        baton(&args)
            .envs(self.env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the collector starts")
    }

    /// Starts and waits until it listens.
    fn start(&self) -> Collector {
        let mut child = self.spawn();
        let mut lines = BufReader::new(child.stderr.take().expect("its messages")).lines();
        let mut before = String::new();
        let (grpc, http) = loop {
            let line = lines.next().unwrap_or_else(|| panic!("it ended: {before}")).expect("text");
            if let Some(rest) = line.strip_prefix("listening: OTLP/gRPC on ") {
                let (grpc, rest) = rest.split_once(", OTLP/HTTP on ").expect("two addresses");
                let (http, _) = rest.split_once(';').expect("a store");
                break (grpc.parse().expect("an address"), http.parse().expect("an address"));
            }
            before.push_str(&line);
            before.push('\n');
        };
        let said = Arc::new(Mutex::new(before));
        let all = said.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut all = all.lock().expect("not poisoned");
                all.push_str(&line);
                all.push('\n');
            }
        });
        Collector { child, http, grpc, said }
    }
}

impl Collector {
    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM; how it ended and how long that took.
    fn terminate(&mut self) -> (Option<i32>, Duration) {
        let started = Instant::now();
        signal(self.child.id(), "TERM");
        loop {
            if let Some(s) = self.child.try_wait().expect("a child") {
                return (s.code(), started.elapsed());
            }
            assert!(started.elapsed() < Duration::from_secs(60), "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn said(&self) -> String {
        self.said.lock().expect("not poisoned").clone()
    }

    /// Waits until its messages hold a text.
    fn says(&self, part: &str) {
        let started = Instant::now();
        while !self.said().contains(part) {
            assert!(started.elapsed() < Duration::from_secs(30), "no `{part}` in: {}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn post(&self, spans: &[u64]) -> u16 {
        post(self.http, "/v1/traces", &[("content-type", "application/x-protobuf")], &request(spans)).status
    }

    fn metric(&self, name: &str) -> f64 {
        let text = get(self.http, "/metrics").body;
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines = text.lines().filter(|l| l.starts_with(name));
        lines.filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.kill();
    }
}

fn signal(pid: u32, name: &str) {
    let sent = std::process::Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(sent.expect("kill").success());
}

fn trace_of(id: u64) -> [u8; 16] {
    (u128::from(id / 5) + 1).to_be_bytes()
}

/// A request of spans, each made of a number.
fn request(ids: &[u64]) -> Vec<u8> {
    let spans = ids
        .iter()
        .map(|id| Span {
            trace_id: trace_of(*id).to_vec(),
            span_id: (id + 1).to_be_bytes().to_vec(),
            name: format!("span {id}"),
            start_time_unix_nano: 1_790_000_000_000_000_000 + id,
            end_time_unix_nano: 1_790_000_000_000_001_000 + id,
            ..Span::default()
        })
        .collect();
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }],
    }
    .encode_to_vec()
}

/// Files of an ending below a folder, sorted.
fn files_of(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let all = if dir.is_dir() { super::files(dir) } else { Vec::new() };
    all.into_iter().filter(|p| p.extension().is_some_and(|e| e == ending)).collect()
}

/// How often each span is in the answers.
fn counts(store: &Path) -> HashMap<u64, u64> {
    let store = store.to_str().expect("a name");
    let answer = run(&[
        "sql",
        "SELECT span_id, count(*) AS n FROM spans GROUP BY span_id ORDER BY span_id",
        "--store",
        store,
        "--format",
        "csv",
    ]);
    assert!(answer.status.success(), "{}", super::stderr(&answer));
    stdout(&answer)
        .lines()
        .skip(1)
        .map(|l| {
            let (id, n) = l.split_once(',').expect("two columns");
            (u64::from_str_radix(id, 16).expect("hex") - 1, n.parse().expect("a number"))
        })
        .collect()
}

/// Every acknowledged span is there exactly once, and no span more than once.
fn each_once(store: &Path, acknowledged: impl IntoIterator<Item = u64>) {
    let found = counts(store);
    let doubled: Vec<_> = found.iter().filter(|(_, n)| **n != 1).take(5).collect();
    assert!(doubled.is_empty(), "counted more than once: {doubled:?}");
    let lost: Vec<u64> = acknowledged.into_iter().filter(|id| !found.contains_key(id)).collect();
    assert!(lost.is_empty(), "{} acknowledged and lost: {:?}", lost.len(), &lost[..lost.len().min(5)]);
}

/// An answer over HTTP.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

fn get(to: SocketAddr, path: &str) -> Answer {
    exchange(to, format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes())
}

/// Posts a body; status 0 where the connection failed.
fn post(to: SocketAddr, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut head =
        format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    for (k, v) in headers {
        head.push_str(&format!("{k}: {v}\r\n"));
    }
    head.push_str("\r\n");
    exchange(to, &[head.as_bytes(), body].concat())
}

fn exchange(to: SocketAddr, bytes: &[u8]) -> Answer {
    let mut all = Vec::new();
    if let Ok(mut s) = TcpStream::connect(to) {
        let _ = s.set_read_timeout(Some(Duration::from_secs(60)));
        // A body that is refused early may not be read to its end.
        let _ = s.write_all(bytes);
        let _ = s.read_to_end(&mut all);
    }
    let end = all.windows(4).position(|w| w == b"\r\n\r\n").map_or(all.len(), |p| p + 4);
    let head = String::from_utf8_lossy(&all[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    Answer { status, head, body: all.split_off(end) }
}
