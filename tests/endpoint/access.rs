//! Who gets in: passwords, TLS, and addresses that others reach.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, NoTls};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::{Endpoint, connect, rows, told};

/// A certificate for `localhost`, and what trusts it.
fn certificate(folder: &Path) -> (PathBuf, PathBuf, RootCertStore) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    (cert, key, roots)
}

/// Connects as drivers do that ask for TLS.
async fn over_tls(
    endpoint: &Endpoint,
    roots: RootCertStore,
    password: &str,
) -> Result<Client, tokio_postgres::Error> {
    let mut tcp = tokio::net::TcpStream::connect(endpoint.sql).await.unwrap();
    tcp.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).await.unwrap();
    assert_eq!(tcp.read_u8().await.unwrap(), b'S');
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
    let mut config = endpoint.config();
    let (client, connection) =
        config.password(password).ssl_mode(SslMode::Disable).connect_raw(tls, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

#[tokio::test(flavor = "multi_thread")]
async fn users_need_their_password_and_others_learn_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password.txt");
    std::fs::write(&file, "s3cret pass\n").unwrap();
    let users =
        format!("[[serve.users]]\nname = \"reader\"\npassword_file = {:?}\n", file.display().to_string());
    let endpoint = Endpoint::over_samples(folder.path(), &users);
    assert!(connect(&endpoint.config()).await.is_err());
    let with = |user: &str, password: &str| {
        let mut c = endpoint.config();
        c.user(user).password(password);
        c
    };
    assert_eq!(rows(&connect(&with("reader", "s3cret pass")).await.unwrap(), "SELECT 1").await, [["1"]]);
    let wrong = told(&connect(&with("reader", "wrong")).await.err().unwrap());
    let nobody = told(&connect(&with("nobody", "s3cret pass")).await.err().unwrap());
    let empty = told(&connect(&with("nobody", "")).await.err().unwrap());
    assert!(wrong.starts_with("28P01"), "{wrong}");
    assert_eq!(wrong.replace("reader", "nobody"), nobody);
    assert_eq!(nobody, empty);

    // A message of another kind is no way in.
    let mut raw = std::net::TcpStream::connect(endpoint.sql).unwrap();
    let mut startup = vec![0, 0, 0, 0, 0, 3, 0, 0];
    startup.extend(b"user\0reader\0\0");
    startup[3] = startup.len() as u8;
    raw.write_all(&startup).unwrap();
    raw.write_all(b"Q\0\0\0\x0dSELECT 1\0").unwrap();
    raw.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    let mut answer = Vec::new();
    let _ = raw.read_to_end(&mut answer);
    assert!(!answer.windows(6).any(|w| w == b"SELECT"), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_certificate_everything_is_encrypted() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key, roots) = certificate(folder.path());
    let config = format!(
        "[serve.tls]\ncert = {:?}\nkey = {:?}\n[[serve.users]]\nname = \"reader\"\npassword_env = \"PASSWORD\"\n",
        cert.display().to_string(),
        key.display().to_string()
    );
    let store = folder.path().join("store");
    super::run(&["import", "sample-traces", "--store", store.to_str().unwrap()]);
    let endpoint = Endpoint::start("serve", &store, &config, &[("PASSWORD", "pw")]);
    let client = over_tls(&endpoint, roots.clone(), "pw").await.unwrap();
    assert_eq!(rows(&client, "SELECT COUNT(*) FROM tasks").await, [["16"]]);
    assert!(over_tls(&endpoint, roots, "no").await.is_err());
    let mut plain = endpoint.config();
    let plain = connect(plain.password("pw").ssl_mode(SslMode::Disable)).await;
    let why = told(&plain.err().unwrap());
    assert!(why.starts_with("28000") && why.contains("sslmode=require"), "{why}");
}

/// What it says where it does not start, and its exit code.
fn refuses(store: &Path, config: &str, env: &[(&str, &str)]) -> (Option<i32>, String) {
    let (mut child, lines) = Endpoint::spawn("serve", store, config, env);
    let said: Vec<String> = lines.map_while(Result::ok).collect();
    (child.wait().unwrap().code(), said.join("\n"))
}

#[test]
fn what_is_not_safe_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    super::run(&["import", "sample-traces/openai-agents", "--store", store.to_str().unwrap()]);
    let (cert, key, _) = certificate(folder.path());
    let user = "[[serve.users]]\nname = \"a\"\npassword_env = \"P\"\n";
    let tls = |cert: &Path, key: &Path| {
        format!(
            "[serve.tls]\ncert = {:?}\nkey = {:?}\n",
            cert.display().to_string(),
            key.display().to_string()
        )
    };
    let open = "listen = \"0.0.0.0:0\"\n";
    for (config, says) in [
        (open.to_owned(), "no users"),
        (format!("{open}{user}"), "no tls"),
        (format!("{open}{}", tls(&cert, &key)), "no users"),
        // A certificate that cannot be read is no reason to go on without one.
        (tls(&folder.path().join("none.pem"), &key), "none.pem"),
        (tls(&key, &key), "no certificate"),
        (tls(&cert, &cert), "cert.pem"),
        ("[[serve.users]]\nname = \"a\"\npassword_env = \"NOT_THERE\"\n".to_owned(), "NOT_THERE"),
        ("[[serve.users]]\nname = \"a\"\n".to_owned(), "needs password_file or password_env"),
        ("[[serve.users]]\nname = \"a\"\npassword = \"x\"\n".to_owned(), "password"),
        ("statement_timeout = \"1h\"\n".to_owned(), "statement_timeout"),
        ("connections = 0\n".to_owned(), "connections"),
    ] {
        let (code, said) = refuses(&store, &config, &[("P", "x")]);
        assert_eq!(code, Some(2), "{config}: {said}");
        assert!(said.contains(says), "{config}: {said}");
    }
    let (code, said) = refuses(&store, user, &[("P", "")]);
    assert!(code == Some(2) && said.contains("empty"), "{said}");
    let (code, said) = refuses(&folder.path().join("nowhere"), "", &[]);
    assert!(code == Some(1) && said.contains("no store here"), "{said}");
}
