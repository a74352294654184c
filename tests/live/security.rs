//! Who may send, and what never touches the disk.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rcgen::{CertificateParams, Issuer, KeyPair};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::{Start, files_of, get, post, request};

const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");

#[test]
fn other_machines_are_let_in_only_with_credentials_or_by_a_plain_word() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let open = SocketAddr::from(([0, 0, 0, 0], 0));
    let ended = Start { http: open, ..Start::at(&store) }.spawn().wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(said.contains("insecure = true") && said.contains("0.0.0.0"), "{said}");
    let config = "[collect]\ninsecure = true\n";
    let c = Start { http: open, config, ..Start::at(&store) }.start();
    assert!(c.said().contains("warning"), "{}", c.said());
    // With a token there is nothing to warn of.
    std::fs::write(dir.path().join("token"), "s3cret\n").unwrap();
    let config = format!("[collect]\ntoken_file = {:?}\n", dir.path().join("token"));
    let c = Start { http: open, config: &config, ..Start::at(&store) }.start();
    assert!(!c.said().contains("warning"), "{}", c.said());
}

#[test]
fn a_token_is_asked_for_at_every_door_but_health() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("token"), "s3cret\n").unwrap();
    let config = format!("[collect]\ntoken_file = {:?}\n", dir.path().join("token"));
    let c = Start { config: &config, ..Start::at(&dir.path().join("store")) }.start();
    let body = request(&[1]);
    let send =
        |auth: &[(&str, &str)]| post(c.http, "/v1/traces", &[&[PROTOBUF], auth].concat(), &body).status;
    assert_eq!(send(&[]), 401);
    assert_eq!(send(&[("authorization", "Bearer s3cre")]), 401);
    assert_eq!(send(&[("authorization", "Basic s3cret")]), 401);
    assert_eq!(send(&[("authorization", "bearer s3cret")]), 200);
    assert_eq!((get(c.http, "/metrics").status, get(c.http, "/").status), (401, 401));
    assert_eq!((get(c.http, "/healthz").status, get(c.http, "/readyz").status), (200, 200));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let codes = runtime.block_on(async {
        use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
        use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
        let mut client = TraceServiceClient::connect(format!("http://{}", c.grpc)).await.unwrap();
        let without = client.export(ExportTraceServiceRequest::default()).await.unwrap_err().code();
        let mut request = tonic::Request::new(ExportTraceServiceRequest::default());
        request.metadata_mut().insert("authorization", "Bearer s3cret".parse().unwrap());
        (without, client.export(request).await.is_ok())
    });
    assert_eq!(codes, (tonic::Code::Unauthenticated, true));
}

#[test]
fn a_configuration_that_lets_nobody_in_safely_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("empty"), "\n").unwrap();
    for config in [
        format!("[collect]\ntoken_file = {:?}\n", dir.path().join("none")),
        format!("[collect]\ntoken_file = {:?}\n", dir.path().join("empty")),
        "[collect]\ntoken_env = \"BATON_TEST_NO_SUCH_VARIABLE\"\n".to_owned(),
        format!("[collect.tls]\ncert = {0:?}\nkey = {0:?}\n", dir.path().join("empty")),
    ] {
        let ended =
            Start { config: &config, ..Start::at(&dir.path().join("s")) }.spawn().wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(2), "{config}: {}", String::from_utf8_lossy(&ended.stderr));
    }
}

/// An authority with a server's and a client's certificate.
struct Certificates {
    ca: String,
    server: (String, String),
    client: (CertificateDer<'static>, PrivateKeyDer<'static>),
}

fn certificates() -> Certificates {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let issue = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        (cert, key)
    };
    let (server, server_key) = issue("localhost");
    let (client, client_key) = issue("agent");
    Certificates {
        ca,
        server: (server.pem(), server_key.serialize_pem()),
        client: (client.der().clone(), PrivateKeyDer::Pkcs8(client_key.serialize_der().into())),
    }
}

/// The status of a request over TLS; none where the other side did not let it in.
fn over_tls(to: SocketAddr, c: &Certificates, with_certificate: bool) -> Option<u16> {
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(c.ca.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = if with_certificate {
        config.with_client_auth_cert(vec![c.client.0.clone()], c.client.1.clone_key()).unwrap()
    } else {
        config.with_no_client_auth()
    };
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut tls = StreamOwned::new(connection, TcpStream::connect(to).unwrap());
    let body = request(&[7]);
    let head = format!(
        "POST /v1/traces HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/x-protobuf\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    tls.write_all(&[head.as_bytes(), &body].concat()).ok()?;
    let mut answer = Vec::new();
    let _ = tls.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
}

#[test]
fn tls_and_mutual_tls() {
    let dir = tempfile::tempdir().unwrap();
    let c = certificates();
    let file = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name)
    };
    let (cert, key) = (file("cert.pem", &c.server.0), file("key.pem", &c.server.1));
    let ca = file("ca.pem", &c.ca);
    let config = format!("[collect.tls]\ncert = {cert:?}\nkey = {key:?}\n");
    let one = Start { config: &config, ..Start::at(&dir.path().join("one")) }.start();
    assert_eq!(over_tls(one.http, &c, false), Some(200));
    // Nothing is understood in plain text.
    assert_eq!(one.post(&[1]), 0);
    let config = format!("{config}client_ca = {ca:?}\n");
    let two = Start { config: &config, ..Start::at(&dir.path().join("two")) }.start();
    assert_eq!(over_tls(two.http, &c, true), Some(200));
    assert_eq!(over_tls(two.http, &c, false), None);
    assert_eq!(over_tls(two.grpc, &c, false), None);
}

#[test]
fn what_is_masked_never_touches_the_disk() {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
    use prost::Message;
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let config = "[redact]\npatterns = [\"CUST-\\\\d+\"]\n[collect]\nvisible_after = \"1h\"\n";
    let mut c = Start { config, ..Start::at(&store) }.start();
    let mut body = ExportTraceServiceRequest::decode(&request(&[1])[..]).unwrap();
    let span = &mut body.resource_spans[0].scope_spans[0].spans[0];
    let secret = "AKIAIOSFODNN7EXAMPLE";
    let text = format!("the key is {secret} of CUST-4711, kept with care");
    let attribute = |k: &str, v: &str| KeyValue {
        key: k.into(),
        value: Some(AnyValue { value: Some(Value::StringValue(v.into())) }),
        ..KeyValue::default()
    };
    let messages = serde_json::json!([{"role": "user", "parts": [{"type": "text", "content": text}]}]);
    span.attributes = vec![
        attribute("gen_ai.operation.name", "chat"),
        attribute("gen_ai.input.messages", &messages.to_string()),
    ];
    assert_eq!(post(c.http, "/v1/traces", &[PROTOBUF], &body.encode_to_vec()).status, 200);
    c.kill();
    let segments = files_of(&store.join("journal"), "arrows");
    let bytes = std::fs::read(&segments[0]).unwrap();
    let holds = |part: &str| bytes.windows(part.len()).any(|w| w == part.as_bytes());
    assert!(holds("kept with care"));
    assert!(!holds(secret) && !holds("CUST-4711"));
}
