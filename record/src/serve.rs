//! `[serve]` of `baton.toml`: settings of the SQL endpoint. Everything is optional.
//!
//! ```toml
//! [serve]
//! listen = "127.0.0.1:5432"
//! statement_timeout = "60s"       # a statement that takes longer is ended; at most 9m
//! memory_limit = "1GiB"           # of all statements together, about
//! connections = 100               # at once
//! statements = 16                 # at once; others wait
//! refresh = "5s"                  # how often the store is looked at for what is new
//! insecure = false                # listen on other than loopback addresses without users or TLS
//!
//! [serve.tls]
//! cert = "cert.pem"
//! key = "key.pem"
//!
//! [[serve.users]]                 # absent: whoever reaches the port may read
//! name = "grafana"
//! password_file = "grafana.txt"   # or password_env = "NAME"
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use crate::collect::{Size, Wrong, duration};

/// Tables that were replaced are kept a little longer than this for those who read them.
const LONGEST: Duration = Duration::from_secs(540);

/// Settings of the SQL endpoint; `None`: its default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Serve {
    /// Where it listens.
    pub listen: Option<SocketAddr>,
    /// How long a statement may take.
    pub statement_timeout: Option<Duration>,
    /// Memory of all statements in bytes.
    pub memory_limit: Option<u64>,
    /// Connections at once.
    pub connections: Option<u32>,
    /// Statements at once.
    pub statements: Option<u32>,
    /// How often the store is looked at.
    pub refresh: Option<Duration>,
    /// Listen on other than loopback addresses without users or TLS.
    pub insecure: bool,
    /// Certificate.
    pub tls: Option<Tls>,
    /// Who may connect.
    pub users: Vec<User>,
}

/// A certificate as PEM files.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// Certificate chain.
    pub cert: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// Who may connect, and where the password stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// Where its password stands.
    pub password: Secret,
}

/// Where a secret stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secret {
    /// In a file.
    File(PathBuf),
    /// In a variable of the environment.
    Env(String),
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawServe {
    listen: Option<SocketAddr>,
    statement_timeout: Option<Spanned<String>>,
    memory_limit: Option<Spanned<Size>>,
    connections: Option<Spanned<u32>>,
    statements: Option<Spanned<u32>>,
    refresh: Option<Spanned<String>>,
    insecure: bool,
    tls: Option<Tls>,
    users: Vec<Spanned<RawUser>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawUser {
    name: String,
    password_file: Option<PathBuf>,
    password_env: Option<String>,
}

impl RawServe {
    pub(crate) fn check(self) -> Result<Serve, Wrong> {
        let time = |key: &str,
                    v: Option<Spanned<String>>,
                    longest: Duration|
         -> Result<Option<Duration>, Wrong> {
            let Some(v) = v else { return Ok(None) };
            match duration(v.get_ref()).filter(|d| !d.is_zero() && *d <= longest) {
                Some(d) => Ok(Some(d)),
                None => Err((
                    v.span(),
                    format!("serve.{key}: `{}` is no time like 45s, or more than {longest:?}", v.get_ref()),
                )),
            }
        };
        let count = |key: &str, v: Option<Spanned<u32>>| match v {
            Some(v) if *v.get_ref() == 0 => Err((v.span(), format!("serve.{key}: must be at least 1"))),
            v => Ok(v.map(Spanned::into_inner)),
        };
        let mut users: Vec<User> = Vec::new();
        for u in self.users {
            let span = u.span();
            let wrong = |what: String| (span.clone(), format!("serve.users: {what}"));
            let u = u.into_inner();
            if u.name.is_empty() || users.iter().any(|o| o.name == u.name) {
                return Err(wrong(format!("`{}` is empty or there twice", u.name)));
            }
            let password = match (u.password_file, u.password_env) {
                (Some(f), None) => Secret::File(f),
                (None, Some(e)) => Secret::Env(e),
                _ => return Err(wrong(format!("`{}` needs password_file or password_env", u.name))),
            };
            users.push(User { name: u.name, password });
        }
        Ok(Serve {
            listen: self.listen,
            statement_timeout: time("statement_timeout", self.statement_timeout, LONGEST)?,
            memory_limit: Size::check("serve.memory_limit", self.memory_limit, 16 << 20)?,
            connections: count("connections", self.connections)?,
            statements: count("statements", self.statements)?,
            refresh: time("refresh", self.refresh, Duration::from_secs(3600))?,
            insecure: self.insecure,
            tls: self.tls,
            users,
        })
    }
}
