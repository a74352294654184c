//! One connection: TLS, messages of bounded length, and an end where the client is gone.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use baton_record::serve::Tls;
use datafusion_postgres::pgwire::api::ClientInfo;
use datafusion_postgres::pgwire::api::cancel::CancelHandler;
use datafusion_postgres::pgwire::api::{ErrorHandler, NoopHandler, PgWireConnectionState};
use datafusion_postgres::pgwire::error::PgWireError;
use datafusion_postgres::pgwire::messages::cancel::CancelRequest;
use datafusion_postgres::pgwire::messages::startup::SecretKey;
use datafusion_postgres::pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use datafusion_postgres::pgwire::tokio::server::{
    MaybeTls, PgWireMessageServerCodec, negotiate_tls, process_error, process_message,
};
use futures::{SinkExt, StreamExt};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::query::{Errors, Service, Statement};
use super::startup::Startup;
use super::{Error, Shared};

/// From the first byte until the client has shown who it is.
const STARTUP: Duration = Duration::from_secs(10);
/// Bytes of one message: longer statements are refused before they are read.
const MESSAGE: usize = 4 << 20;
/// How often a client that has sent more than was read is looked at.
const LOOK: Duration = Duration::from_millis(100);

type Socket = tokio_util::codec::Framed<MaybeTls, PgWireMessageServerCodec<Statement>>;

/// What ends a statement before its time.
pub(super) struct Ends {
    cancelled: Notify,
    /// A second handle to the connection, to see that the other side is gone while a statement runs.
    watch: Option<TcpStream>,
}

impl Ends {
    /// The client asked for it, over another connection.
    pub(super) async fn cancelled(&self) {
        self.cancelled.notified().await;
    }

    /// The client closed the connection.
    pub(super) async fn gone(&self) {
        let Some(watch) = &self.watch else { return std::future::pending().await };
        loop {
            match watch.ready(Interest::READABLE).await {
                Ok(state) if !state.is_read_closed() => sleep(LOOK).await,
                _ => return,
            }
        }
    }
}

/// What a client must know to cancel a statement.
type Key = (i32, Vec<u8>);

/// Statements that run.
#[derive(Default)]
pub(super) struct Running(Mutex<HashMap<Key, Arc<Ends>>>);

/// One of them; it is taken out of the list in the end.
pub(super) struct Run<'a> {
    running: &'a Running,
    key: Key,
}

impl Running {
    pub(super) fn begin(&self, pid: i32, secret: &SecretKey, ends: Arc<Ends>) -> Run<'_> {
        let key = (pid, secret_bytes(secret));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), ends);
        Run { running: self, key }
    }

    fn cancel(&self, pid: i32, secret: &SecretKey) {
        let key = (pid, secret_bytes(secret));
        if let Some(ends) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            ends.cancelled.notify_waiters();
        }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.running.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// The same key has two forms, by the version of the protocol.
fn secret_bytes(secret: &SecretKey) -> Vec<u8> {
    match secret {
        SecretKey::I32(n) => n.to_be_bytes().to_vec(),
        SecretKey::Bytes(b) => b.to_vec(),
    }
}

struct Cancel(Arc<Shared>);

#[async_trait]
impl CancelHandler for Cancel {
    async fn on_cancel_request(&self, request: CancelRequest) {
        self.0.running.cancel(request.pid, &request.secret_key);
    }
}

/// Certificate and key as the listener takes them. A wrong one is an error: nothing falls back to plain connections.
pub(super) fn acceptor(tls: &Tls) -> Result<TlsAcceptor, Error> {
    let wrong = |path: &Path, what: String| Error::Setting(format!("serve.tls: {}: {what}", path.display()));
    let open = |path: &Path| File::open(path).map(BufReader::new).map_err(|e| wrong(path, e.to_string()));
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_reader_iter(open(&tls.cert)?)
        .collect::<Result<_, _>>()
        .map_err(|e| wrong(&tls.cert, e.to_string()))?;
    if chain.is_empty() {
        return Err(wrong(&tls.cert, "no certificate in it".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_reader(open(&tls.key)?).map_err(|e| wrong(&tls.key, e.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| wrong(&tls.cert, e.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|e| wrong(&tls.cert, e.to_string()))?;
    // Clients that begin with TLS at once name the protocol.
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves a client until one side ends it. One that is `refused` is only told so.
pub(super) async fn serve(tcp: TcpStream, shared: Arc<Shared>, refused: bool) {
    let deadline = Instant::now() + STARTUP;
    let Ok((tcp, watch)) = doubled(tcp) else { return };
    let negotiated = timeout_at(deadline, negotiate_tls(tcp, shared.tls.clone())).await;
    let Ok(Ok(Some(mut socket))) = negotiated else { return };
    let ends = Arc::new(Ends { cancelled: Notify::new(), watch });
    let startup = Arc::new(Startup::new(&shared, refused));
    let service = Arc::new(Service::new(&shared, ends));
    let (copy, cancel, errors) = (Arc::new(NoopHandler), Arc::new(Cancel(shared)), Errors);
    loop {
        let starting = matches!(
            socket.state(),
            PgWireConnectionState::AwaitingStartup | PgWireConnectionState::AuthenticationInProgress
        );
        let next = next(&mut socket);
        let message = if starting { timeout_at(deadline, next).await.unwrap_or(None) } else { next.await };
        let message = match message {
            None => return,
            Some(Ok(PgWireFrontendMessage::Terminate(_))) => return,
            Some(Ok(m)) => m,
            Some(Err(e)) => {
                // What follows cannot be told apart.
                let info = datafusion_postgres::pgwire::error::ErrorInfo::from(e);
                let _ = socket.send(PgWireBackendMessage::ErrorResponse(info.into())).await;
                return;
            }
        };
        let extended = match socket.state() {
            PgWireConnectionState::CopyInProgress(extended) => extended,
            _ => message.is_extended_query(),
        };
        let (simple, ext) = (service.clone(), service.clone());
        let done =
            process_message(message, &mut socket, startup.clone(), simple, ext, copy.clone(), cancel.clone());
        let done = if starting { timeout_at(deadline, done).await.unwrap_or(Ok(())) } else { done.await };
        if let Err(mut e) = done {
            errors.on_error(&socket, &mut e);
            if process_error(&mut socket, e, extended).await.is_err() {
                return;
            }
            // Who did not get in does not go on.
            if starting {
                return;
            }
        }
    }
}

/// The next message. One that is too long is not read to its end.
async fn next(socket: &mut Socket) -> Option<Result<PgWireFrontendMessage, PgWireError>> {
    std::future::poll_fn(|cx| match socket.poll_next_unpin(cx) {
        Poll::Pending if socket.read_buffer().len() > MESSAGE => {
            Poll::Ready(Some(Err(PgWireError::MessageTooLarge(MESSAGE, socket.read_buffer().len()))))
        }
        p => p,
    })
    .await
}

/// A second handle to a connection.
fn doubled(tcp: TcpStream) -> std::io::Result<(TcpStream, Option<TcpStream>)> {
    let tcp = tcp.into_std()?;
    let second = tcp.try_clone().and_then(TcpStream::from_std).ok();
    Ok((TcpStream::from_std(tcp)?, second))
}
