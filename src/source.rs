//! From what the user named to a session: reading files into a store for one evaluation, or opening the store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use baton_analyzer::engine::Engine;
use baton_analyzer::report::text;
use baton_analyzer::rules;
use baton_analyzer::session::{Limits, Session};
use baton_analyzer::window::Window;
use baton_collector::import::{Position, Summary, import};
use baton_collector::otlp::{Problem, expand};
use baton_collector::reading::Reader;
use baton_collector::store::Store;
use baton_record::config::Config;
use baton_record::objects::is_url;

use crate::cli::{DEFAULT_STORE, Period, Source};
use crate::{Exit, Usage, terminal};

/// Reads and checks the configuration: the named file, else `baton.toml` of the working folder, else the defaults.
pub(crate) fn config(path: Option<&Path>) -> Result<Config> {
    let default = Path::new("baton.toml");
    let path = match path {
        Some(p) => p,
        None if default.is_file() => default,
        None => return Ok(Config::default()),
    };
    terminal::detail(|| format!("configuration: {}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| Usage(format!("{}: {e}", path.display())))?;
    let config = Config::parse(&path.display().to_string(), &text).map_err(|e| Usage(e.to_string()))?;
    rules::check(&config).map_err(|e| Usage(e.to_string()))?;
    Ok(config)
}

/// A session with what it stands on.
pub(crate) struct Opened {
    pub(crate) session: Session,
    /// What could not be read.
    pub(crate) problems: Vec<Problem>,
    /// Held until the end: the folder of an evaluation without a store.
    _folder: Option<tempfile::TempDir>,
}

impl Opened {
    /// The exit code that the input asks for.
    pub(crate) fn exit(&self) -> Exit {
        if self.problems.is_empty() { Exit::Done } else { Exit::Unread }
    }
}

/// Nanoseconds since 1970.
pub(crate) fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    i64::try_from(now).unwrap_or(i64::MAX)
}

/// The window that the user named.
pub(crate) fn window(period: &Period) -> Result<Window> {
    Ok(Window::parse(period.since.as_deref(), period.until.as_deref(), now())
        .map_err(|e| Usage(e.to_string()))?)
}

/// Opens what the user named, for questions about the tasks of a window.
pub(crate) async fn open(source: &Source, config: Config, window: Window) -> Result<Opened> {
    open_on(Engine::Local, source, config, window).await
}

/// The same; tasks that are not assembled yet are on an engine.
pub(crate) async fn open_on(
    engine: Engine,
    source: &Source,
    config: Config,
    window: Window,
) -> Result<Opened> {
    if source.paths.is_empty() {
        let store: PathBuf = source.store.clone().unwrap_or_else(|| DEFAULT_STORE.into());
        let session = session(&store, engine, &config, window).await?;
        return Ok(Opened { session, problems: Vec::new(), _folder: None });
    }
    if engine != Engine::Local {
        return Err(
            Usage("--engine: executors read a store and no files; name it with --store".to_owned()).into()
        );
    }
    let folder = tempfile::Builder::new().prefix("baton-").tempdir()?;
    let mut store = Store::ephemeral(folder.path())?;
    let summary = read(&source.paths, &config, &mut store, false)?;
    let session = session(folder.path(), engine, &config, window).await?;
    Ok(Opened { session, problems: summary.problems, _folder: Some(folder) })
}

/// Opens what is named in one word: a store folder or recorded OTLP, then `@SINCE..UNTIL` for a window of time and
/// `@service=NAME` for one service alone. What exists by the whole word is meant as it is.
pub(crate) async fn named(word: &str, config: Config) -> Result<(Opened, Option<String>)> {
    let (mut place, mut window, mut service) = (word, Window::default(), None);
    if !Path::new(word).exists() {
        if let Some((before, name)) = place.split_once("@service=") {
            (place, service) = (before, Some(name.to_owned()));
        }
        if let Some((before, times)) = place.rsplit_once('@').filter(|(_, t)| t.contains("..")) {
            let times = Window::parse_range(times, now());
            (place, window) = (before, times.map_err(|e| Usage(format!("{}: {e}", text::plain(word))))?);
        }
    }
    // Only a store has this folder; what is no store is read as files, whose absence is told.
    let is_store = is_url(place) || Path::new(place).join("spans").is_dir();
    let source = Source {
        paths: if is_store { Vec::new() } else { vec![place.to_owned()] },
        store: is_store.then(|| place.into()),
    };
    Ok((open(&source, config, window).await?, service))
}

/// Opens a store, which assembles its tasks where they are not yet.
async fn session(store: &Path, engine: Engine, config: &Config, window: Window) -> Result<Session> {
    let started = Instant::now();
    let spinner = terminal::spinner("assembling tasks");
    let limits = Limits { engine, ..Limits::default() };
    let session = Session::open(store, config, limits, window).await;
    spinner.finish_and_clear();
    terminal::detail(|| format!("tasks ready after {:.2} s", started.elapsed().as_secs_f64()));
    Ok(session?)
}

/// Reads files into a store, with a progress bar on a terminal, and says on standard error what could not be read.
pub(crate) fn read(paths: &[String], config: &Config, store: &mut Store, each_file: bool) -> Result<Summary> {
    let inputs = expand(paths);
    let reader = Reader::new(Arc::new(config.clone()), store.key());
    let total: u64 = inputs.files.iter().map(|f| f.size).sum();
    let started = Instant::now();
    let bar = terminal::bar(total);
    let summary = import(&inputs, &reader, store, each_file, &mut |p: Position<'_>| {
        bar.set_position(p.bytes);
        bar.set_message(text::short(&text::plain(p.file), 60));
    })?;
    bar.finish_and_clear();
    terminal::detail(|| {
        let seconds = started.elapsed().as_secs_f64();
        format!("read after {seconds:.2} s: files {}, spans {}", summary.files, summary.spans)
    });
    for p in &summary.problems {
        eprintln!("not read: {}", text::plain(&p.to_string()));
    }
    if summary.repeated_attributes > 0 {
        terminal::note(&format!(
            "{} attributes stand twice on their span; the last one counts",
            summary.repeated_attributes
        ));
    }
    Ok(summary)
}

/// Runs async work.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}
