//! A store on an object store that comes and goes.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use baton_record::schema::SpanColumns;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::{Start, files_of};

/// As much of S3 as a collector asks for: objects are put and got. Away, it answers as a service does that is overloaded.
#[derive(Clone)]
struct Bucket {
    address: SocketAddr,
    objects: Arc<Mutex<HashMap<String, Vec<u8>>>>,
    away: Arc<AtomicBool>,
}

impl Bucket {
    fn start() -> Self {
        let listener = TcpListener::bind(super::any()).unwrap();
        let b =
            Self { address: listener.local_addr().unwrap(), objects: Arc::default(), away: Arc::default() };
        let shared = b.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || while shared.answer(&stream).is_some() {});
            }
        });
        b
    }

    /// One request; `None`: the connection ended.
    fn answer(&self, stream: &TcpStream) -> Option<()> {
        let mut r = BufReader::new(stream);
        let mut line = String::new();
        r.read_line(&mut line).ok().filter(|n| *n > 0)?;
        let (method, path) = (line.split(' ').next()?.to_owned(), line.split(' ').nth(1)?.to_owned());
        let (mut length, mut create) = (0, false);
        loop {
            let mut head = String::new();
            r.read_line(&mut head).ok()?;
            let head = head.trim().to_ascii_lowercase();
            if head.is_empty() {
                break;
            }
            if let Some(n) = head.strip_prefix("content-length:") {
                length = n.trim().parse().ok()?;
            }
            create |= head.starts_with("if-none-match:");
        }
        let mut body = vec![0; length];
        r.read_exact(&mut body).ok()?;
        let mut objects = self.objects.lock().unwrap();
        let (status, body) = match method.as_str() {
            _ if self.away.load(Ordering::Relaxed) => ("503 Slow Down", Vec::new()),
            "PUT" if create && objects.contains_key(&path) => ("412 Precondition Failed", Vec::new()),
            "PUT" => {
                objects.insert(path, body);
                ("200 OK", Vec::new())
            }
            "GET" => match objects.get(&path) {
                Some(o) => ("200 OK", o.clone()),
                None => ("404 Not Found", Vec::new()),
            },
            _ => ("501 Not Implemented", Vec::new()),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\netag: \"1\"\r\nlast-modified: Mon, 30 Nov 2026 00:00:00 GMT\r\n\r\n",
            body.len()
        );
        let mut out = stream;
        out.write_all(head.as_bytes()).and_then(|()| out.write_all(&body)).ok()
    }

    fn be_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }

    /// How often each span stands in its files.
    fn spans(&self) -> HashMap<u64, u64> {
        let mut found = HashMap::new();
        for (path, bytes) in self.objects.lock().unwrap().iter().filter(|(p, _)| p.ends_with(".parquet")) {
            assert!(path.contains("/bucket/some/place/spans/date%3D2026-"), "{path}");
            let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes.clone())).unwrap();
            for batch in reader.build().unwrap() {
                let columns = SpanColumns::new(&batch.unwrap()).unwrap();
                for row in 0..columns.len() {
                    let id = u64::from_str_radix(columns.span(row).span_id, 16).unwrap() - 1;
                    *found.entry(id).or_insert(0) += 1;
                }
            }
        }
        found
    }
}

#[test]
fn while_the_object_store_is_away_rows_wait_in_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Bucket::start();
    let endpoint = format!("http://{}", bucket.address);
    let (journal, none) = (dir.path().join("journal"), dir.path().join("none"));
    let start = Start {
        place: Some("s3://bucket/some/place"),
        journal: Some(&journal),
        env: &[
            ("AWS_ENDPOINT", &endpoint),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_REGION", "eu-central-1"),
        ],
        config: "[collect]\nvisible_after = \"1s\"\njournal_limit = \"1MiB\"\n",
        ..Start::at(&none)
    };
    let mut c = start.start();
    let mut kept = Vec::new();
    assert_eq!(c.post(&[1, 2]), 200);
    kept.extend([1, 2]);
    let wait = |what: &str, done: &dyn Fn() -> bool| {
        let started = Instant::now();
        while !done() {
            assert!(started.elapsed() < Duration::from_secs(30), "{what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    wait("stored", &|| bucket.spans().len() == 2);
    bucket.be_away(true);
    // Taken as before, up to the journal's limit; then not, and it says why.
    let mut id = 10;
    let refused = loop {
        match c.post(&[id, id + 1, id + 2]) {
            200 => kept.extend([id, id + 1, id + 2]),
            other => break other,
        }
        id += 3;
        assert!(id < 10_000, "never full");
    };
    assert_eq!(refused, 503);
    assert!(kept.len() > 10, "{}", kept.len());
    c.says("cannot be stored yet");
    // Killed and started again while the store is away: nothing is lost.
    c.kill();
    let mut c = start.start();
    c.says("taken over");
    bucket.be_away(false);
    wait("stored after it came back", &|| kept.iter().all(|id| bucket.spans().contains_key(id)));
    wait("room again", &|| c.post(&[20_000]) == 200);
    kept.push(20_000);
    assert_eq!(c.terminate().0, Some(0), "{}", c.said());
    let found = bucket.spans();
    assert!(kept.iter().all(|id| found.get(id) == Some(&1)), "{found:?}");
    assert!(files_of(&journal, "arrows").is_empty());
}
