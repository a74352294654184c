//! Parts of a refresh on the executors of an Apache Ballista cluster (feature `cluster`).
//!
//! Ballista brings the parts to executors, begins anew what was lost with one of them, and brings back what each says it did. What is
//! made goes from the executors to the store, which all of them reach under the same name. Reports ask the finished tables from
//! where they run: of tables that are summed already little is read.

mod codec;
mod exec;
mod process;

use std::sync::Arc;

use ballista_core::config::BallistaConfig;
use ballista_core::execution_plans::execute_physical_plan;
use ballista_core::extension::SessionConfigExt;
use datafusion::error::DataFusionError;
use datafusion::prelude::SessionConfig;
use datafusion_proto::protobuf::PhysicalPlanNode;
use futures::StreamExt;

use crate::place::Place;
use crate::session::{Error, Result, io};
use crate::work::{BUILD, Done, Job, Part, Worker};

pub use process::{Executor, Scheduler};

use codec::Codec;
use exec::{Spec, WorkExec, unpacked};

/// Bytes of a message between client, scheduler and executors: plans name files.
const MESSAGE: usize = 64 << 20;
/// How often parts are given to the cluster whose results could not be fetched, since the executor that held them went away.
const ATTEMPTS: usize = 3;

/// Does parts on a cluster, by its scheduler's host and port.
///
/// # Errors
/// Where the cluster cannot be reached or has no executor, and the first that a part has.
pub(crate) async fn run(scheduler: &str, worker: &Worker, job: &Job, parts: Vec<Part>) -> Result<Vec<Done>> {
    let store = match &worker.place {
        Place::Folder(root) => std::path::absolute(root).map_err(io(root))?.display().to_string(),
        Place::Objects(o) => o.url(""),
    };
    let spec =
        Spec { build: BUILD.to_owned(), store, config: worker.config.identity.clone(), job: job.clone() };
    let mut done: Vec<Option<Done>> = parts.iter().map(|_| None).collect();
    let mut attempt = 1;
    loop {
        // What was lost last time.
        let places: Vec<usize> = (0..parts.len()).filter(|i| done[*i].is_none()).collect();
        let left: Vec<Part> = places.iter().map(|i| parts[*i].clone()).collect();
        let plan = WorkExec::of(spec.clone(), &left)?;
        let keep = |i: usize, d| {
            if let Some(place) = places.get(i) {
                done[*place] = Some(d);
            }
        };
        match once(scheduler, plan, keep).await {
            Ok(()) => {}
            // The first answer came, so the work is done and only its results were lost.
            Err(_) if attempt < ATTEMPTS && places.iter().any(|i| done[*i].is_some()) => {}
            Err(e) => return Err(failed(scheduler, &e)),
        }
        if done.iter().all(Option::is_some) {
            return Ok(done.into_iter().flatten().collect());
        }
        if attempt == ATTEMPTS {
            let reason = format!("{} parts gave no answer", done.iter().filter(|d| d.is_none()).count());
            return Err(Error::Cluster { scheduler: scheduler.to_owned(), reason });
        }
        attempt += 1;
    }
}

async fn once(
    scheduler: &str,
    plan: WorkExec,
    mut each: impl FnMut(usize, Done),
) -> Result<(), DataFusionError> {
    let settings = SessionConfig::new_with_ballista().with_ballista_grpc_client_max_message_size(MESSAGE);
    let ballista: BallistaConfig = settings.ballista_config();
    // A name of its own for each: sessions of a scheduler are told apart by it.
    let random = getrandom::u64().map_err(|e| DataFusionError::Execution(e.to_string()))?;
    let session = format!("baton-{random:016x}");
    let mut answers = execute_physical_plan::<PhysicalPlanNode>(
        format!("http://{scheduler}"),
        &ballista,
        Arc::new(plan),
        &Codec::default(),
        session,
        settings,
    )
    .await?;
    while let Some(batch) = answers.next().await {
        for (place, done) in unpacked(&batch?)? {
            each(usize::try_from(place).unwrap_or(usize::MAX), done);
        }
    }
    Ok(())
}

/// What a user reads of an error: the engine wraps it several times.
fn failed(scheduler: &str, e: &DataFusionError) -> Error {
    let text = e.strip_backtrace();
    let own =
        text.split_once(exec::MARK).and_then(|(_, rest)| rest.split_once(exec::END)).map(|(own, _)| own);
    let reason = match own {
        Some(own) => own.to_owned(),
        None if text.contains("transport error") || text.contains("ConnectError") => {
            "cannot be reached; is `baton cluster scheduler` running there?".to_owned()
        }
        None => text,
    };
    Error::Cluster { scheduler: scheduler.to_owned(), reason }
}
