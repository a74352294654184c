//! `[collect]` of `baton.toml`: settings of the live collector. Everything is optional.
//!
//! ```toml
//! [collect]
//! grpc = "127.0.0.1:4317"
//! http = "127.0.0.1:4318"
//! durability = "synced"           # or "written": answer before the disk has it
//! visible_after = "5s"            # rows can be asked for after this time
//! memory_limit = "1GiB"           # of the process, about
//! max_body = "16MiB"              # of one request, packed or not
//! journal = "baton-data/journal"  # where what is acknowledged waits to be stored
//! journal_limit = "4GiB"          # past it senders are told to try again
//! token_file = "token.txt"        # senders must show this bearer token; or token_env = "NAME"
//! insecure = false                # listen on other than loopback addresses without token or client certificates
//! compact = true                  # small files of past hours are merged
//! keep = "90d"                    # older hours are removed; absent: never
//!
//! [collect.tls]
//! cert = "cert.pem"
//! key = "key.pem"
//! client_ca = "ca.pem"            # senders must show a certificate of it
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

/// Settings of the live collector; `None`: its default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collect {
    /// Where OTLP over gRPC is listened for.
    pub grpc: Option<SocketAddr>,
    /// Where OTLP over HTTP is listened for.
    pub http: Option<SocketAddr>,
    /// Answer only when the disk has the rows.
    pub synced: bool,
    /// Rows can be asked for after this time.
    pub visible_after: Option<Duration>,
    /// Memory of the process in bytes, about.
    pub memory_limit: Option<u64>,
    /// Bytes of one body.
    pub max_body: Option<u64>,
    /// The journal's folder.
    pub journal: Option<PathBuf>,
    /// Bytes of journal.
    pub journal_limit: Option<u64>,
    /// A file that holds the token senders must show.
    pub token_file: Option<PathBuf>,
    /// An environment variable that holds it.
    pub token_env: Option<String>,
    /// Listen on other than loopback addresses although senders need neither token nor certificate.
    pub insecure: bool,
    /// Merge small files of past hours.
    pub compact: bool,
    /// Remove hours older than this.
    pub keep: Option<Duration>,
    /// Certificates.
    pub tls: Option<CollectTls>,
}

impl Default for Collect {
    fn default() -> Self {
        Self {
            grpc: None,
            http: None,
            synced: true,
            visible_after: None,
            memory_limit: None,
            max_body: None,
            journal: None,
            journal_limit: None,
            token_file: None,
            token_env: None,
            insecure: false,
            compact: true,
            keep: None,
            tls: None,
        }
    }
}

/// Certificates of the listeners, as PEM files.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectTls {
    /// Certificate chain.
    pub cert: PathBuf,
    /// Private key.
    pub key: PathBuf,
    /// Authorities whose certificates senders must show one of.
    pub client_ca: Option<PathBuf>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawCollect {
    grpc: Option<SocketAddr>,
    http: Option<SocketAddr>,
    durability: Durability,
    visible_after: Option<Spanned<String>>,
    memory_limit: Option<Spanned<Size>>,
    max_body: Option<Spanned<Size>>,
    journal: Option<PathBuf>,
    journal_limit: Option<Spanned<Size>>,
    token_file: Option<PathBuf>,
    token_env: Option<Spanned<String>>,
    insecure: bool,
    compact: Option<bool>,
    keep: Option<Spanned<String>>,
    tls: Option<CollectTls>,
}

#[derive(Deserialize, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Durability {
    #[default]
    Synced,
    Written,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Size {
    Bytes(u64),
    Text(String),
}

impl Size {
    /// The bytes of a setting, which are not less than some.
    pub(crate) fn check(key: &str, v: Option<Spanned<Self>>, least: u64) -> Result<Option<u64>, Wrong> {
        let Some(v) = v else { return Ok(None) };
        let bytes = match v.get_ref() {
            Self::Bytes(n) => Some(*n),
            Self::Text(t) => size(t),
        };
        match bytes.filter(|n| *n >= least) {
            Some(n) => Ok(Some(n)),
            None => Err((v.span(), format!("{key}: no size like 64MiB, or less than {least} bytes"))),
        }
    }
}

/// What is wrong, with its place in the file.
pub(crate) type Wrong = (std::ops::Range<usize>, String);

impl RawCollect {
    pub(crate) fn check(self) -> Result<Collect, Wrong> {
        let duration = |key: &str, v: Option<Spanned<String>>| -> Result<Option<Duration>, Wrong> {
            v.map(|v| {
                duration(v.get_ref()).filter(|d| !d.is_zero()).ok_or_else(|| {
                    let what =
                        format!("collect.{key}: `{}` is no time like 90d, 24h, 30m or 45s", v.get_ref());
                    (v.span(), what)
                })
            })
            .transpose()
        };
        let size = |key: &str, v, least| Size::check(&format!("collect.{key}"), v, least);
        if let (Some(_), Some(env)) = (&self.token_file, &self.token_env) {
            return Err((env.span(), "collect: token_file and token_env are both given".to_owned()));
        }
        Ok(Collect {
            grpc: self.grpc,
            http: self.http,
            synced: self.durability == Durability::Synced,
            visible_after: duration("visible_after", self.visible_after)?,
            memory_limit: size("memory_limit", self.memory_limit, 64 << 20)?,
            max_body: size("max_body", self.max_body, 1 << 10)?,
            journal: self.journal,
            journal_limit: size("journal_limit", self.journal_limit, 1 << 20)?,
            token_file: self.token_file,
            token_env: self.token_env.map(Spanned::into_inner),
            insecure: self.insecure,
            compact: self.compact.unwrap_or(true),
            keep: duration("keep", self.keep)?,
            tls: self.tls,
        })
    }
}

/// A time like `90d`, `24h`, `30m`, `45s`.
pub fn duration(text: &str) -> Option<Duration> {
    let (at, unit) = text.char_indices().next_back()?;
    let seconds: u64 = match unit {
        'd' => 86_400,
        'h' => 3600,
        'm' => 60,
        's' => 1,
        _ => return None,
    };
    number(&text[..at])?.checked_mul(seconds).map(Duration::from_secs)
}

/// A size in bytes like `512MiB`, `4GiB`, `64kB` or `1048576`.
pub fn size(text: &str) -> Option<u64> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit: u64 = match text[at..].trim() {
        "" | "B" => 1,
        "kB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number(&text[..at])?.checked_mul(unit)
}

fn number(text: &str) -> Option<u64> {
    // `parse` takes a sign too.
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_example_in_the_docs_is_accepted() {
        let toml: String = include_str!("collect.rs")
            .lines()
            .skip_while(|l| !l.contains("```toml"))
            .skip(1)
            .take_while(|l| !l.contains("```"))
            .map(|l| l.trim_start_matches("//!").trim_start().to_owned() + "\n")
            .collect();
        let c = Config::parse("baton.toml", &toml).unwrap_or_else(|e| panic!("{e}")).collect;
        assert_eq!((c.max_body, c.memory_limit), (Some(16 << 20), Some(1 << 30)));
        assert_eq!(c.keep, Some(Duration::from_secs(90 * 86_400)));
        assert!(c.synced && c.compact && c.tls.is_some_and(|t| t.client_ca.is_some()));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let cases = [
            ("[collect]\nvisible_after = \"5\"\n", 2, "no time"),
            ("[collect]\n\nmax_body = \"1 stone\"\n", 3, "no size"),
            ("[collect]\nmemory_limit = 5\n", 2, "less than"),
            ("[collect]\nhttp = \"localhost\"\n", 2, "address"),
            ("[collect]\ntoken_file = \"a\"\ntoken_env = \"B\"\n", 3, "both"),
            ("[collect]\nport = 1\n", 2, "port"),
        ];
        for (text, line, part) in cases {
            let e = Config::parse("baton.toml", text).err();
            assert!(
                e.as_ref().is_some_and(|e| e.line == line && e.to_string().contains(part)),
                "{text}: {e:?}"
            );
        }
    }

    #[test]
    fn sizes_and_times() {
        assert_eq!((size("64kB"), size("2GiB"), size("7")), (Some(64_000), Some(2 << 30), Some(7)));
        assert_eq!((size("-1"), size("1.5GiB"), size("")), (None, None, None));
        assert_eq!(duration("24h"), Some(Duration::from_secs(86_400)));
        assert_eq!((duration("+1d"), duration("d"), duration("1w")), (None, None, None));
    }
}
