//! The parts of a refresh: each stands for itself, reads files of a store and puts what it makes of them into the store. So they can be
//! done side by side, on this machine or on others, and one that was lost half done is done again.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use baton_record::canonical::sha256_hex;
use baton_record::config::Config;
use baton_record::objects::Listed;
use baton_record::prints::PrintKey;
use baton_record::schema;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext, col, lit};
use foldhash::HashMap;
use serde::{Deserialize, Serialize};

use crate::aside::{Aside, Bucket};
use crate::assemble::{HistoryFilter, Rules};
use crate::group::FileTraces;
use crate::place::Place;
use crate::plan::AssembleExec;
use crate::session::{Error, Result, io};
use crate::units;

/// This program: what another one made of the same spans may differ.
pub(crate) const BUILD: &str = env!("BATON_BUILD");
/// Where what decides about the traces of a file of spans is kept.
pub(crate) const TRACES: &str = "tables/traces";
/// Below the folder of a refresh: rows of tasks of several files or traces.
pub(crate) const ASIDE: &str = "aside";
/// There: the traces that they are of.
const APART: &str = "traces";
/// Rows of units that are summed together.
const SUMMED: usize = 1 << 20;
/// Bytes of files that are one part: at least, so that the parts are worth their beginning, and at most, so that there are many.
const PART: (u64, u64) = (1 << 20, 64 << 20);

/// What the parts of one step have in common.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The folder below the store that gets what is made.
    pub(crate) out: String,
    /// Names of units begin with this number.
    pub(crate) refresh: u64,
    /// Parts in which rows are set aside; 0: none is.
    pub(crate) buckets: usize,
    /// Of older files only rows of these traces are looked at; `None`: they are too many to name.
    pub(crate) named: Option<Vec<String>>,
    /// The history filter under which transfers are judged.
    #[serde(skip)]
    pub(crate) filter: Option<Arc<HistoryFilter>>,
}

/// A part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Part {
    /// Find out what decides about the traces of files, and keep it.
    Traces(Vec<String>),
    /// Assemble what files hold.
    Assemble {
        /// Told apart by this.
        number: usize,
        files: Vec<String>,
        /// Only set rows aside: what else the files hold stands in the tables already.
        older: bool,
    },
    /// Assemble what was set aside in a bucket, in these files.
    Bucket { number: usize, files: Vec<String> },
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Traces(files) => write!(f, "traces of {} files", files.len()),
            Self::Assemble { number, files, older: false } => {
                write!(f, "tasks of {} files, {number}", files.len())
            }
            Self::Assemble { number, files, older: true } => {
                write!(f, "older rows of {} files, {number}", files.len())
            }
            Self::Bucket { number, .. } => write!(f, "tasks of several traces or files, {number}"),
        }
    }
}

/// What a part did.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Done {
    /// Units that were made, with the number of their rows.
    pub(crate) units: Vec<(String, usize)>,
    /// Files of rows set aside, with their bucket.
    pub(crate) aside: Vec<(usize, String)>,
    /// Recordings of spans beyond the first of each.
    pub(crate) doubled: u64,
}

/// Does parts of a store's refreshes.
#[derive(Debug, Clone)]
pub(crate) struct Worker {
    /// Where the spans are.
    pub(crate) place: Place,
    /// Where what is made of them goes.
    pub(crate) made: Place,
    pub(crate) config: Config,
    pub(crate) key: PrintKey,
    pub(crate) runtime: Arc<RuntimeEnv>,
    /// The traces that are set aside, of the folder that was asked for last.
    pub(crate) apart: Arc<Mutex<Option<Apart>>>,
}

/// Traces that are set aside, each with the key of its task, under their name.
pub(crate) type Apart = (String, Arc<HashMap<u128, u128>>);

/// The name of what decides about the traces of a file.
pub(crate) fn traces_of(file: &str) -> String {
    format!("{TRACES}/{}", &sha256_hex(format!("{BUILD}\n{file}").as_bytes())[..32])
}

/// Files in runs of about the same size, as many as `threads` where there is enough in them.
pub(crate) fn runs(files: &[&Listed], threads: usize) -> Vec<Vec<String>> {
    let all: u64 = files.iter().map(|f| f.size).sum();
    let each = (all / threads.max(1) as u64).clamp(PART.0, PART.1);
    let mut out: Vec<Vec<String>> = Vec::new();
    let mut held = each;
    for f in files {
        if held >= each {
            out.push(Vec::new());
            held = 0;
        }
        held += f.size;
        out.iter_mut().last().into_iter().for_each(|run| run.push(f.name.clone()));
    }
    out
}

impl Worker {
    pub(crate) fn new(place: Place, config: Config, key: PrintKey, runtime: Arc<RuntimeEnv>) -> Self {
        Self { made: place.clone(), place, config, key, runtime, apart: Arc::default() }
    }

    /// Keeps the traces that a job sets aside, for its parts.
    ///
    /// # Errors
    /// Where they cannot be written.
    pub(crate) async fn set_apart(&self, job: &Job, apart: HashMap<u128, u128>) -> Result<()> {
        let name = format!("{}/{ASIDE}/{APART}", job.out);
        self.made.write(&name, packed(&self.made, &name, &apart)?).await?;
        self.remember(name, Arc::new(apart));
        Ok(())
    }

    fn remember(&self, name: String, apart: Arc<HashMap<u128, u128>>) {
        *self.apart.lock().unwrap_or_else(PoisonError::into_inner) = Some((name, apart));
    }

    async fn apart(&self, job: &Job) -> Result<Arc<HashMap<u128, u128>>> {
        let name = format!("{}/{ASIDE}/{APART}", job.out);
        let known = self.apart.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, apart)) = known.filter(|(n, _)| *n == name) {
            return Ok(apart);
        }
        let apart: Arc<HashMap<u128, u128>> = Arc::new(unpacked(&self.made, &name).await?);
        self.remember(name, apart.clone());
        Ok(apart)
    }

    /// Does a part.
    ///
    /// # Errors
    /// Where a file cannot be read or written, and the engine's.
    pub(crate) async fn run(self: Arc<Self>, job: Job, part: Part) -> Result<Done> {
        match part {
            Part::Traces(files) => self.traces(&files).await,
            Part::Assemble { number, files, older } => self.assemble(&job, number, &files, older).await,
            Part::Bucket { number, files } => self.bucket(&job, number, &files).await,
        }
    }

    async fn traces(&self, files: &[String]) -> Result<Done> {
        // One after the other: of an object store, each is held here while it is read.
        for file in files {
            let local = self.place.local(std::slice::from_ref(file)).await?;
            for path in &local.paths {
                let name = traces_of(file);
                let found = FileTraces::read(path)?;
                self.place.write(&name, packed(&self.place, &name, &found)?).await?;
            }
        }
        Ok(Done::default())
    }

    async fn assemble(&self, job: &Job, number: usize, files: &[String], older: bool) -> Result<Done> {
        let shop = self.made.workshop(&job.out)?;
        let rules = self.rules(job);
        let aside = match job.buckets {
            0 => None,
            n => {
                let dir = shop.path().join(ASIDE);
                std::fs::create_dir(&dir).map_err(io(&dir))?;
                Some(Arc::new(Aside::new(self.apart(job).await?, dir, n)))
            }
        };
        units::create(shop.path())?;
        let local = self.place.local(files).await?;
        let plan = self.scan(&local.paths, job.named.as_deref().filter(|_| older)).await?;
        let plan = AssembleExec::new(plan, rules.clone(), aside, number, older);
        let ctx = SessionContext::new_with_config_rt(SessionConfig::new(), self.runtime.clone());
        let rows = plan.execute(0, ctx.task_ctx())?;
        let name = format!("{}-{}-{number:04}", job.refresh, u8::from(older));
        let units = units::write(rows, shop.path().to_owned(), name).await?;
        drop(local);
        self.finish(job, shop.path(), units, &rules).await
    }

    async fn bucket(&self, job: &Job, number: usize, files: &[String]) -> Result<Done> {
        let shop = self.made.workshop(&job.out)?;
        let rules = self.rules(job);
        units::create(shop.path())?;
        let local = self.made.local(files).await?;
        let apart = self.apart(job).await?;
        let bucket = tokio::task::spawn_blocking(move || Bucket::read(&apart, &local.paths))
            .await
            .map_err(|_| Error::Worker)??;
        let rows = futures::stream::iter(bucket.assemble(rules.clone()));
        let name = format!("{}-2-{number:04}", job.refresh);
        let units = units::write(rows, shop.path().to_owned(), name).await?;
        self.finish(job, shop.path(), units, &rules).await
    }

    fn rules(&self, job: &Job) -> Arc<Rules> {
        Arc::new(Rules { filter: job.filter.clone(), ..Rules::new(&self.config, self.key) })
    }

    /// Sums what was made, and puts it where it belongs.
    async fn finish(
        &self,
        job: &Job,
        shop: &Path,
        units: Vec<(String, usize)>,
        rules: &Rules,
    ) -> Result<Done> {
        self.sum(shop, &units).await?;
        let mut aside = Vec::new();
        if job.buckets > 0 && shop.join(ASIDE).is_dir() {
            for entry in std::fs::read_dir(shop.join(ASIDE)).map_err(io(shop))? {
                let name = entry.map_err(io(shop))?.file_name().to_string_lossy().into_owned();
                if let Some(bucket) = Aside::bucket_of(&name) {
                    aside.push((bucket, format!("{}/{ASIDE}/{name}", job.out)));
                }
            }
            aside.sort();
        }
        self.made.publish(shop, &job.out).await?;
        Ok(Done { units, aside, doubled: rules.doubled.load(Ordering::Relaxed) })
    }

    /// Sums the measures of units in a folder of this machine.
    ///
    /// # Errors
    /// The engine's, and where a file cannot be read or written.
    pub(crate) async fn sum(&self, dir: &Path, units: &[(String, usize)]) -> Result<()> {
        let mut parts: Vec<Vec<String>> = Vec::new();
        let mut held = SUMMED;
        for (unit, rows) in units {
            if held >= SUMMED {
                parts.push(Vec::new());
                held = 0;
            }
            held += rows;
            parts.iter_mut().last().into_iter().for_each(|p| p.push(unit.clone()));
        }
        for part in parts {
            units::sum(self.runtime.clone(), dir, &part).await?;
        }
        Ok(())
    }

    /// Files one after the other in one stream; only rows of the traces named, where there are names.
    async fn scan(&self, files: &[PathBuf], names: Option<&[String]>) -> Result<Arc<dyn ExecutionPlan>> {
        let mut settings = SessionConfig::new().with_target_partitions(1);
        settings.options_mut().optimizer.repartition_file_scans = false;
        settings.options_mut().execution.collect_statistics = false;
        settings.options_mut().execution.parquet.pushdown_filters = true;
        let ctx = SessionContext::new_with_config_rt(settings, self.runtime.clone());
        let paths: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
        let fields = schema::schema();
        let mut frame = ctx.read_parquet(paths, ParquetReadOptions::default().schema(&fields)).await?;
        if let Some(names) = names {
            frame = frame
                .filter(col("trace_id").in_list(names.iter().map(|n| lit(n.as_str())).collect(), false))?;
        }
        Ok(frame.create_physical_plan().await?)
    }
}

fn packed<T: Serialize>(place: &Place, name: &str, of: &T) -> Result<Vec<u8>> {
    postcard::to_allocvec(of).map_err(|e| io(Path::new(&place.address(name)))(std::io::Error::other(e)))
}

/// Reads what was packed into a file.
///
/// # Errors
/// Where it is not there or holds something else.
pub(crate) async fn unpacked<T: for<'a> Deserialize<'a>>(place: &Place, name: &str) -> Result<T> {
    let wrong = |e| Error::Io { path: place.address(name).into(), source: e };
    let bytes = place.read(name).await?.ok_or_else(|| wrong(std::io::ErrorKind::NotFound.into()))?;
    postcard::from_bytes(&bytes).map_err(|e| wrong(std::io::Error::other(e)))
}
