//! The listeners: TCP, TLS, connections, and an orderly end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use baton_record::config::CollectTls;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// Reads the certificates of a listener.
///
/// # Errors
/// Which file is wrong, and why.
pub(super) fn acceptor(tls: &CollectTls) -> Result<TlsAcceptor, String> {
    let wrong = |path: &PathBuf, e: String| format!("{}: {e}", path.display());
    let certs = |path: &PathBuf| -> Result<Vec<CertificateDer<'static>>, String> {
        let found: Result<Vec<_>, _> =
            CertificateDer::pem_file_iter(path).map_err(|e| wrong(path, e.to_string()))?.collect();
        let found = found.map_err(|e| wrong(path, e.to_string()))?;
        if found.is_empty() { Err(wrong(path, "holds no certificate".to_owned())) } else { Ok(found) }
    };
    let chain = certs(&tls.cert)?;
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|e| wrong(&tls.key, e.to_string()))?;
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for c in certs(path)? {
                roots.add(c).map_err(|e| wrong(path, e.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|e| wrong(path, e.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|e| wrong(&tls.cert, e.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Connections of one listener at a time; more wait in the system's queue.
const CONNECTIONS: usize = 1024;
/// A handshake or the head of a request must come within this time.
const HEAD: Duration = Duration::from_secs(10);
/// Requests of one HTTP/2 connection at a time.
const STREAMS: u32 = 256;
/// How long connections may take to end.
const DRAIN: Duration = Duration::from_secs(3);

/// Serves until `stop` becomes true, then lets what is under way end.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<TlsAcceptor>,
    mut stop: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { break };
        let accepted = tokio::select! {
            a = listener.accept() => a,
            _ = stop.wait_for(|s| *s) => break,
        };
        let Ok((stream, _)) = accepted else {
            // No more file descriptors, most often: some are given back soon.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (router, tls, stop) = (router.clone(), tls.clone(), stop.clone());
        connections.spawn(async move {
            match tls {
                None => connection(stream, router, stop).await,
                Some(tls) => {
                    if let Ok(Ok(stream)) = tokio::time::timeout(HEAD, tls.accept(stream)).await {
                        connection(stream, router, stop).await;
                    }
                }
            }
            drop(place);
        });
        // Forget those that ended.
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(DRAIN, ended).await;
}

async fn connection<S>(stream: S, router: Router, mut stop: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(16 << 10)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(served);
    let ended = tokio::select! {
        _ = served.as_mut() => true,
        _ = stop.wait_for(|s| *s) => false,
    };
    if !ended {
        served.as_mut().graceful_shutdown();
        // How a connection ends is the other side's matter.
        let _ = served.await;
    }
}

/// True where an address is reached from this machine alone.
pub fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}
