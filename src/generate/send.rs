//! Generated spans as load: sent to a collector as an exporter would, with answers timed.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use baton_collector::live::ingest::Packing;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use prost::Message;
use tokio::sync::{Mutex, mpsc};
use tonic::codec::CompressionEncoding;
use tonic::transport::{Channel, Endpoint};

use super::wire;
use crate::emit::is_retryable;

/// How to send.
#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) url: String,
    pub(super) packing: Packing,
    pub(super) connections: usize,
    /// Spans per second; none: as fast as the collector answers.
    pub(super) rate: Option<u64>,
    pub(super) token: Option<String>,
}

/// What was sent and how it was answered.
#[derive(Debug, Default)]
struct Tally {
    spans: AtomicU64,
    rejected: AtomicU64,
    bytes: AtomicU64,
    packed: AtomicU64,
    retries: AtomicU64,
}

enum Body {
    Http(Bytes),
    Grpc(ExportTraceServiceRequest),
}

struct Parcel {
    spans: u64,
    body: Body,
}

/// Sends requests from several connections.
pub(super) struct Sender {
    options: Options,
    runtime: tokio::runtime::Runtime,
    queue: Option<mpsc::Sender<Parcel>>,
    tasks: Vec<tokio::task::JoinHandle<Result<Vec<Duration>>>>,
    tally: Arc<Tally>,
    started: Instant,
    sent: u64,
}

/// A request is tried again for so long.
const PATIENCE: Duration = Duration::from_secs(120);

impl Sender {
    pub(super) fn new(options: Options) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (queue, rest) = mpsc::channel(options.connections * 2);
        let rest = Arc::new(Mutex::new(rest));
        let tally = Arc::new(Tally::default());
        let mut tasks = Vec::new();
        for _ in 0..options.connections.max(1) {
            let door = runtime.block_on(Door::open(&options))?;
            tasks.push(runtime.spawn(run(door, rest.clone(), tally.clone())));
        }
        Ok(Self { options, runtime, queue: Some(queue), tasks, tally, started: Instant::now(), sent: 0 })
    }

    pub(super) fn request(&mut self, request: ExportTraceServiceRequest) -> Result<()> {
        let spans = wire::spans(&request);
        if let Some(rate) = self.options.rate {
            let due = Duration::from_secs_f64(self.sent as f64 / rate.max(1) as f64);
            std::thread::sleep(due.saturating_sub(self.started.elapsed()));
        }
        self.sent += spans;
        let body = if self.options.url.starts_with("grpc") {
            self.tally.bytes.fetch_add(request.encoded_len() as u64, Ordering::Relaxed);
            Body::Grpc(request)
        } else {
            let plain = request.encode_to_vec();
            self.tally.bytes.fetch_add(plain.len() as u64, Ordering::Relaxed);
            let packed = pack(self.options.packing, plain)?;
            self.tally.packed.fetch_add(packed.len() as u64, Ordering::Relaxed);
            Body::Http(packed)
        };
        let queue = self.queue.as_ref().context("the sender has ended")?;
        queue.blocking_send(Parcel { spans, body }).map_err(|_| anyhow!("no connection is left"))
    }

    /// Waits for all answers and says what was measured.
    pub(super) fn finish(mut self) -> Result<()> {
        self.queue.take();
        let mut times = Vec::new();
        for t in self.tasks {
            times.extend(self.runtime.block_on(t)??);
        }
        let took = self.started.elapsed().as_secs_f64();
        times.sort_unstable();
        let at = |q: f64| times.get(((times.len() as f64 * q) as usize).min(times.len().saturating_sub(1)));
        let ms = |d: Option<&Duration>| d.map_or(f64::NAN, |d| d.as_secs_f64() * 1e3);
        let n = |a: &AtomicU64| a.load(Ordering::Relaxed);
        let t = &self.tally;
        println!(
            "{} spans acknowledged in {took:.2} s: {:.0} spans/s, {:.1} MB/s; {} requests, {} tried again, {} spans rejected",
            n(&t.spans),
            n(&t.spans) as f64 / took,
            n(&t.bytes) as f64 / 1e6 / took,
            times.len(),
            n(&t.retries),
            n(&t.rejected),
        );
        println!(
            "time to answer: p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms; {:.0} bytes a span, {:.0} as sent",
            ms(at(0.5)),
            ms(at(0.99)),
            ms(times.last()),
            n(&t.bytes) as f64 / n(&t.spans).max(1) as f64,
            (if n(&t.packed) > 0 { n(&t.packed) } else { n(&t.bytes) }) as f64 / n(&t.spans).max(1) as f64,
        );
        Ok(())
    }
}

fn pack(packing: Packing, plain: Vec<u8>) -> Result<Bytes> {
    Ok(match packing {
        Packing::Plain => plain.into(),
        Packing::Gzip => {
            let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            e.write_all(&plain)?;
            e.finish()?.into()
        }
        Packing::Zstd => zstd::encode_all(&plain[..], 3)?.into(),
    })
}

/// A connection.
enum Door {
    Http {
        client: Box<Client<HttpConnector, Full<Bytes>>>,
        url: String,
        packing: Packing,
        token: Option<String>,
    },
    Grpc {
        client: Box<TraceServiceClient<Channel>>,
        token: Option<String>,
    },
}

/// How a request was answered.
enum Answer {
    Taken { rejected: u64 },
    Again(Duration, String),
    Never(String),
}

impl Door {
    async fn open(o: &Options) -> Result<Self> {
        if let Some(rest) = o.url.strip_prefix("grpc://") {
            let channel = Endpoint::from_shared(format!("http://{rest}"))
                .with_context(|| o.url.clone())?
                .connect_lazy();
            let client = TraceServiceClient::new(channel).max_decoding_message_size(1 << 20);
            let client = match o.packing {
                Packing::Plain => client,
                Packing::Gzip => client.send_compressed(CompressionEncoding::Gzip),
                Packing::Zstd => client.send_compressed(CompressionEncoding::Zstd),
            };
            return Ok(Self::Grpc { client: Box::new(client), token: o.token.clone() });
        }
        if !o.url.starts_with("http://") {
            bail!("`{}`: an address starts with http:// or grpc://", o.url);
        }
        Ok(Self::Http {
            client: Box::new(Client::builder(TokioExecutor::new()).build_http()),
            url: format!("{}/v1/traces", o.url.trim_end_matches('/')),
            packing: o.packing,
            token: o.token.clone(),
        })
    }

    async fn send(&mut self, body: &Body) -> Result<Answer> {
        match (self, body) {
            (Self::Http { client, url, packing, token }, Body::Http(bytes)) => {
                let mut request =
                    hyper::Request::post(url.as_str()).header("content-type", "application/x-protobuf");
                match packing {
                    Packing::Plain => {}
                    Packing::Gzip => request = request.header("content-encoding", "gzip"),
                    Packing::Zstd => request = request.header("content-encoding", "zstd"),
                }
                if let Some(t) = token {
                    request = request.header("authorization", format!("Bearer {t}"));
                }
                let response = match client.request(request.body(Full::new(bytes.clone()))?).await {
                    Ok(r) => r,
                    Err(e) => return Ok(Answer::Again(Duration::from_millis(100), e.to_string())),
                };
                let status = response.status().as_u16();
                let after = response.headers().get("retry-after").and_then(|v| v.to_str().ok());
                let after = Duration::from_secs(after.and_then(|v| v.parse().ok()).unwrap_or(1));
                let Ok(body) = response.into_body().collect().await else {
                    return Ok(Answer::Again(
                        Duration::from_millis(100),
                        "the answer ended early".to_owned(),
                    ));
                };
                Ok(match status {
                    200 => Answer::Taken { rejected: wire::rejected(&body.to_bytes()) },
                    429 | 502 | 503 | 504 => Answer::Again(after, format!("HTTP {status}")),
                    _ => Answer::Never(format!("HTTP {status}")),
                })
            }
            (Self::Grpc { client, token }, Body::Grpc(request)) => {
                let mut request = tonic::Request::new(request.clone());
                if let Some(t) = token {
                    request.metadata_mut().insert("authorization", format!("Bearer {t}").parse()?);
                }
                Ok(match client.export(request).await {
                    Ok(r) => {
                        let p = r.into_inner().partial_success.unwrap_or_default();
                        Answer::Taken { rejected: u64::try_from(p.rejected_spans).unwrap_or(0) }
                    }
                    // Unknown: a connection that broke.
                    Err(s) if is_retryable(s.code()) || s.code() == tonic::Code::Unknown => {
                        Answer::Again(Duration::from_millis(200), s.to_string())
                    }
                    Err(s) => Answer::Never(s.to_string()),
                })
            }
            _ => bail!("a request of the other protocol (a defect)"),
        }
    }
}

async fn run(
    mut door: Door,
    queue: Arc<Mutex<mpsc::Receiver<Parcel>>>,
    tally: Arc<Tally>,
) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    loop {
        let next = queue.lock().await.recv().await;
        let Some(parcel) = next else { return Ok(times) };
        let since = Instant::now();
        loop {
            let started = Instant::now();
            match door.send(&parcel.body).await? {
                Answer::Taken { rejected } => {
                    times.push(started.elapsed());
                    tally.spans.fetch_add(parcel.spans - rejected.min(parcel.spans), Ordering::Relaxed);
                    tally.rejected.fetch_add(rejected, Ordering::Relaxed);
                    break;
                }
                Answer::Again(after, why) => {
                    if since.elapsed() > PATIENCE {
                        bail!("not taken for {} s: {why}", PATIENCE.as_secs());
                    }
                    tally.retries.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(after).await;
                }
                Answer::Never(why) => bail!("refused: {why}"),
            }
        }
    }
}
