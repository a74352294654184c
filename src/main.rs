//! Baton: observability and evaluation for agent handoffs.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use baton_analyzer::session::{Limits, Session};
use baton_collector::import::import;
use baton_collector::otlp::expand;
use baton_collector::reading::Reader;
use baton_collector::store::Store;
use baton_record::config::{Config, ContentMode};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let files: Vec<String> = args.iter().skip(1).take_while(|a| !a.starts_with("--")).cloned().collect();
    let mut config = Config::default();
    if std::env::var("CONTENT").is_ok_and(|c| c == "none") {
        config.content = ContentMode::None;
    }
    let dir = tempfile::tempdir()?;
    let store_dir: PathBuf = dir.path().join("store");
    let mut store = Store::ephemeral(&store_dir)?;
    let reader = Reader::new(Arc::new(config.clone()), store.key());
    let summary = import(&expand(&files), &reader, &mut store, &mut |_| {})?;
    for p in &summary.problems {
        eprintln!("{p}");
    }
    let rt = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = rt.block_on(async {
        let s = Session::open(&store_dir, &dir.path().join("tables"), &config, Limits::default()).await?;
        baton_analyzer::report::json::report(&s).await
    })?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}
