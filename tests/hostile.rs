//! No input makes it panic, hang or grow: every input is read by the binary, which must end by itself with a code it
//! documents, within 1 GiB, and say what it could not read.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

use super::baton;

/// How one run ended.
struct Ended {
    exit: Option<i32>,
    stdout: String,
    stderr: String,
    /// Most memory held, in bytes; 0 where the system does not say.
    peak: u64,
}

fn peak(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().strip_suffix(" kB")).and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0)
        * 1024
}

fn read(path: &Path) -> Ended {
    let dir = tempfile::tempdir().unwrap();
    let (out, err) = (dir.path().join("out"), dir.path().join("err"));
    let mut child = baton(&["eval", "--format", "json", path.to_str().unwrap()])
        .stdout(fs::File::create(&out).unwrap())
        .stderr(fs::File::create(&err).unwrap())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let mut most = 0;
    let exit = loop {
        most = most.max(peak(&child));
        if let Some(s) = child.try_wait().unwrap() {
            break s.code();
        }
        // Far beyond anything that is only slow.
        if started.elapsed() > Duration::from_secs(240) {
            child.kill().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let text = |p: &Path| String::from_utf8_lossy(&fs::read(p).unwrap()).into_owned();
    Ended { exit, stdout: text(&out), stderr: text(&err), peak: most }
}

/// One good span in OTLP/JSON, with `extra` members.
fn span(id: u8, extra: &str) -> String {
    format!(
        r#"{{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b1{id:02x}","name":"chat m","startTimeUnixNano":"1790000000000000000","endTimeUnixNano":"1790000001000000000","attributes":[{{"key":"gen_ai.operation.name","value":{{"stringValue":"chat"}}}},{{"key":"gen_ai.agent.name","value":{{"stringValue":"canary"}}}}]{extra}}}"#
    )
}

fn document(spans: &[String]) -> String {
    format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{}]}}]}}]}}"#, spans.join(","))
}

fn gzip(parts: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut e = GzEncoder::new(Vec::new(), Compression::fast());
    parts.for_each(|p| e.write_all(&p).unwrap());
    e.finish().unwrap()
}

/// A protobuf field of bytes.
fn field(number: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut n = body.len();
    while n >= 128 {
        out.push(n as u8 | 128);
        n >>= 7;
    }
    out.push(n as u8);
    out.extend(body);
    out
}

/// A span with an attribute of arrays within arrays.
fn deep(levels: usize) -> Vec<u8> {
    let mut value = field(1, b"x");
    for _ in 0..levels {
        value = field(5, &field(1, &value));
    }
    let attribute = [field(1, b"deep"), field(2, &value)].concat();
    let span = [field(1, &[7; 16]), field(2, &[8; 8]), field(5, b"s"), field(9, &attribute)].concat();
    field(1, &field(2, &field(2, &span)))
}

/// Name, bytes, and whether part of it must be reported as not read.
fn inputs() -> Vec<(&'static str, Vec<u8>, bool)> {
    let good = document(&[span(1, "")]);
    let sample =
        fs::read(super::root().join("sample-traces/openai-agents/multi-handoff.otel-genai.otlp.pb")).unwrap();
    let nested = |open: &str, close: &str, n: usize| {
        document(&[span(1, &format!(r#","odd":{}1{}"#, open.repeat(n), close.repeat(n)))])
    };
    let odd_times =
        [(u64::MAX, 5u64), (0, 0), (9_300_000_000_000_000_000, 1), (1_790_000_000_000_000_000, 1)]
            .iter()
            .enumerate()
            .map(|(i, (a, b))| {
                span(i as u8 + 1, "")
                    .replace("1790000000000000000", &a.to_string())
                    .replace("1790000001000000000", &b.to_string())
            })
            .collect::<Vec<_>>();
    let cycle = [(1, 2), (2, 3), (3, 1), (4, 4)]
        .map(|(a, b)| span(a, &format!(r#","parentSpanId":"eee19b7ec3c1b1{b:02x}""#)))
        .to_vec();
    let name = |n: &str| document(&[span(1, "").replace("canary", n)]);
    let big =
        format!(r#","droppedAttributesCount":1,"links":[],"events":[{{"name":"{}"}}]"#, "x".repeat(8 << 20));
    vec![
        ("cut-off", sample[..sample.len() * 6 / 10].to_vec(), true),
        ("noise", (0..1000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect(), true),
        // No bytes are a valid request without spans in protobuf.
        ("empty", Vec::new(), false),
        ("empty-request", b"{}".to_vec(), false),
        ("plain-text", b"hello\nworld\n".to_vec(), true),
        ("bare-nan", good.replace("\"chat\"", "NaN").into_bytes(), true),
        ("two-documents", format!("{good}\n{good}").into_bytes(), false),
        ("one-bad-line-of-three", format!("{good}\n{{\"resourceSpans\": [\n{good}\n").into_bytes(), true),
        ("byte-order-mark", format!("\u{feff}{good}").into_bytes(), false),
        ("length-past-the-end", [&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x07][..], &[0; 50]].concat(), true),
        ("varint-without-end", [&sample[..], &[0xff; 12]].concat(), true),
        ("nested-groups", [&sample[..], &vec![0x7b; 20_000]].concat(), true),
        ("deep-arrays-json", nested("[", "]", 3_500).into_bytes(), true),
        ("deep-objects-json", nested("{\"a\":", "}", 3_500).into_bytes(), true),
        ("deep-arrays", deep(12_000), true),
        (
            "gzip-bomb",
            gzip((0..1024).map(|i| {
                if i == 0 { vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x03] } else { vec![b'a'; 1 << 20] }
            })),
            true,
        ),
        (
            "gzip-without-end",
            {
                let g = gzip(std::iter::once(good.clone().into_bytes()));
                g[..g.len() - 12].to_vec()
            },
            true,
        ),
        (
            "zero-ids",
            document(&[
                span(1, ""),
                span(2, "").replace("5b8efff798038103d269b633813fc60c", &"0".repeat(32)),
            ])
            .into_bytes(),
            true,
        ),
        (
            "short-ids",
            document(&[span(1, ""), span(2, "").replace("5b8efff798038103d269b633813fc60c", "5b8e")])
                .into_bytes(),
            true,
        ),
        ("odd-times", document(&odd_times).into_bytes(), false),
        ("circles", document(&cycle).into_bytes(), false),
        (
            "one-id-two-spans",
            document(&[span(1, ""), span(1, "").replace("chat m", "other")]).into_bytes(),
            false,
        ),
        ("eight-megabytes", document(&[span(1, &big)]).into_bytes(), false),
        ("paths-as-names", name("../../../../etc/passwd").into_bytes(), false),
        ("sql-as-name", name("x'; DROP TABLE tasks; --").into_bytes(), false),
        ("markup-as-name", name("<script>alert(1)</script>").into_bytes(), false),
        ("controls-as-name", name("a\\u0000b\\u001b[2J\\u202ec").into_bytes(), false),
        ("lone-surrogate", name("\\ud800").into_bytes(), true),
    ]
}

#[test]
fn hostile_inputs_are_read_or_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let mut failed = Vec::new();
    for (name, bytes, unreadable) in inputs() {
        let path = dir.path().join(name);
        fs::write(&path, &bytes).unwrap();
        let e = read(&path);
        let want = if unreadable { 3 } else { 0 };
        let mut wrong = Vec::new();
        if e.exit != Some(want) {
            wrong.push(format!("exit {:?}, not {want}", e.exit));
        }
        if unreadable && !(e.stderr.contains("not read") && e.stderr.contains(name)) {
            wrong.push("no message that names the file".to_owned());
        }
        if e.stderr.contains("panicked") {
            wrong.push("panicked".to_owned());
        }
        if e.peak > 1 << 30 {
            wrong.push(format!("held {} MiB", e.peak >> 20));
        }
        if serde_json::from_str::<serde_json::Value>(&e.stdout).is_err() {
            wrong.push("no report".to_owned());
        }
        if !wrong.is_empty() {
            failed.push(format!("{name}: {}\n  {}", wrong.join(", "), e.stderr.trim()));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn what_stands_beside_broken_spans_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes, _) in inputs() {
        if !["one-bad-line-of-three", "zero-ids", "short-ids", "varint-without-end"].contains(&name) {
            continue;
        }
        let path = dir.path().join(name);
        fs::write(&path, &bytes).unwrap();
        let report: serde_json::Value = serde_json::from_str(&read(&path).stdout).unwrap();
        let tasks = report["tasks"].as_array().unwrap();
        assert_eq!(tasks.len(), 1, "{name}");
    }
}
