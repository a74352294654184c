//! The SQL endpoint as a process, asked by a real driver.

mod access;
mod bounds;
mod clients;
mod dashboards;
mod fresh;
mod guard;
mod reading;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio_postgres::{Client, Config, Error, NoTls, SimpleQueryMessage};

use super::{baton, root, run, stdout};

/// An endpoint that runs; killed when dropped.
struct Endpoint {
    child: Child,
    sql: SocketAddr,
    /// Of the collector, where there is one.
    grpc: Option<SocketAddr>,
    said: Arc<Mutex<String>>,
}

impl Endpoint {
    /// Over the recorded runs, with lines of `[serve]`.
    fn over_samples(folder: &Path, config: &str) -> Self {
        let store = folder.join("store");
        let out = run(&["import", "sample-traces", "--store", store.to_str().expect("a name")]);
        assert!(out.status.code() == Some(3) || out.status.success(), "{out:?}");
        Self::start("serve", &store, config, &[])
    }

    fn start(command: &str, store: &Path, config: &str, env: &[(&str, &str)]) -> Self {
        let (child, mut lines) = Self::spawn(command, store, config, env);
        let (mut before, mut grpc) = (String::new(), None);
        let address = |text: &str| text.parse().expect("an address");
        let sql = loop {
            let line = lines.next().unwrap_or_else(|| panic!("it ended: {before}")).expect("text");
            if let Some(rest) = line.strip_prefix("listening: OTLP/gRPC on ") {
                grpc = rest.split_once(',').map(|(a, _)| address(a));
            }
            if let Some(rest) = line.strip_prefix("listening: SQL (Postgres protocol) on ") {
                break rest.split_once(',').map(|(a, _)| address(a)).expect("an address");
            }
            before.push_str(&line);
            before.push('\n');
        };
        let said = Arc::new(Mutex::new(before));
        let all = said.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                all.lock().expect("not poisoned").push_str(&(line + "\n"));
            }
        });
        Self { child, sql, grpc, said }
    }

    #[allow(clippy::type_complexity)]
    fn spawn(
        command: &str,
        store: &Path,
        config: &str,
        env: &[(&str, &str)],
    ) -> (Child, std::io::Lines<BufReader<std::process::ChildStderr>>) {
        let file = store.with_extension("toml");
        std::fs::write(&file, format!("[serve]\n{config}")).expect("a configuration");
        let any = "127.0.0.1:0";
        let mut args = vec!["--config", file.to_str().expect("a name"), command];
        args.extend(["--store", store.to_str().expect("a name")]);
        if !config.contains("listen") {
            args.extend([if command == "up" { "--sql" } else { "--listen" }, any]);
        }
        if command == "up" {
            args.extend(["--grpc", any, "--http", any]);
        }
        let mut child = baton(&args)
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stderr.take().expect("its messages")).lines();
        (child, lines)
    }

    fn config(&self) -> Config {
        let mut c = Config::new();
        c.host(self.sql.ip().to_string()).port(self.sql.port()).user("reader").dbname("baton");
        c
    }

    async fn connect(&self) -> Client {
        connect(&self.config()).await.expect("a connection")
    }

    fn said(&self) -> String {
        self.said.lock().expect("not poisoned").clone()
    }

    /// Memory of the process in MiB.
    fn memory(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("its status");
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).expect("its memory");
        line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).expect("a number") / 1024
    }

    /// Processor time it has used.
    fn worked(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("its times");
        let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
        let ticks: u64 = fields[11..13].iter().map(|t| t.parse::<u64>().expect("ticks")).sum();
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn connect(config: &Config) -> Result<Client, Error> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// All rows of a statement, over the simple protocol; NULL as `-`.
async fn rows(client: &Client, sql: &str) -> Vec<Vec<String>> {
    let answer = client.simple_query(sql).await.unwrap_or_else(|e| panic!("{sql}: {}", told(&e)));
    answer
        .iter()
        .filter_map(|m| match m {
            SimpleQueryMessage::Row(r) => {
                Some((0..r.len()).map(|i| r.get(i).unwrap_or("-").to_owned()).collect())
            }
            _ => None,
        })
        .collect()
}

/// The code and the words of an error that the server told.
fn told(e: &Error) -> String {
    e.as_db_error().map_or_else(|| e.to_string(), |d| format!("{} {}", d.code().code(), d.message()))
}

/// The error of a statement.
async fn refusal(client: &Client, sql: &str) -> String {
    match client.simple_query(sql).await {
        Ok(_) => panic!("{sql}: was done"),
        Err(e) => told(&e),
    }
}

/// Waits until something holds.
async fn until(what: &str, limit: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
