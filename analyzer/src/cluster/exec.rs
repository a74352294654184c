//! Parts of a refresh as an operator: each is a partition that answers with one row.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use baton_record::config::Config;
use datafusion::arrow::array::{BinaryArray, RecordBatch, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use serde::{Deserialize, Serialize};

use crate::session::Error;
use crate::work::{BUILD, Job, Part, Worker};

/// Around the words of an error that are for the user.
pub(super) const MARK: &str = "baton says: ";
pub(super) const END: &str = " (end)";

/// What an executor has to know beside the parts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Spec {
    /// The program that asks.
    pub(super) build: String,
    /// Path or URL of the store.
    pub(super) store: String,
    /// The configuration, as its file says it.
    pub(super) config: String,
    pub(super) job: Job,
}

/// Workers that an executor had use for, by store and configuration.
#[derive(Debug, Default)]
pub(super) struct Workers(Mutex<HashMap<(String, String), Worker>>);

/// Workers held: more than one store and configuration at a time is rare.
const HELD: usize = 16;

impl Workers {
    async fn of(&self, spec: &Spec, runtime: Arc<RuntimeEnv>) -> Result<Arc<Worker>, Error> {
        if spec.build != BUILD {
            let reason = format!(
                "this executor is another build of baton ({BUILD}) than the evaluation ({}); use the same on all machines",
                spec.build
            );
            return Err(Error::Cluster { scheduler: spec.store.clone(), reason });
        }
        let name = (spec.store.clone(), spec.config.clone());
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
        let worker = match known {
            Some(worker) => worker,
            None => {
                let place = super::place_of(&spec.store)?;
                if !place.is_store().await? {
                    return Err(Error::NoStore(spec.store.clone().into()));
                }
                let key = place.key().await?;
                let config = Config::parse("the configuration of the evaluation", &spec.config)?;
                let worker = Worker::new(place, config, key, runtime.clone());
                let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                if held.len() >= HELD {
                    held.clear();
                }
                held.insert(name, worker.clone());
                worker
            }
        };
        // Each part has the memory that is its own.
        Ok(Arc::new(Worker { runtime, ..worker }))
    }
}

/// The operator.
#[derive(Debug)]
pub(super) struct WorkExec {
    pub(super) spec: Spec,
    pub(super) parts: Vec<Part>,
    workers: Arc<Workers>,
    properties: Arc<PlanProperties>,
}

fn schema() -> SchemaRef {
    let place = Field::new("place", DataType::UInt64, false);
    Arc::new(Schema::new(vec![place, Field::new("done", DataType::Binary, false)]))
}

impl WorkExec {
    pub(super) fn new(spec: Spec, parts: Vec<Part>, workers: Arc<Workers>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema()),
            Partitioning::UnknownPartitioning(parts.len()),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self { spec, parts, workers, properties: Arc::new(properties) }
    }
}

impl DisplayAs for WorkExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: store={}, parts={}", self.name(), self.spec.store, self.parts.len())
    }
}

impl ExecutionPlan for WorkExec {
    fn name(&self) -> &'static str {
        "BatonWorkExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let part = self
            .parts
            .get(partition)
            .cloned()
            .ok_or_else(|| DataFusionError::Execution(format!("there is no part {partition}")))?;
        let (spec, workers) = (self.spec.clone(), self.workers.clone());
        let rows = futures::stream::once(async move {
            let worker = workers.of(&spec, context.runtime_env()).await.map_err(told)?;
            let about = format!("part of {} {}: {part}", spec.store, spec.job.out);
            log::info!("{about}");
            let begun = Instant::now();
            let done = worker.run(spec.job, part).await.map_err(told)?;
            log::info!("{about} is done after {:.2} s", begun.elapsed().as_secs_f64());
            let packed = postcard::to_allocvec(&done).map_err(|e| DataFusionError::External(Box::new(e)))?;
            let place = UInt64Array::from(vec![partition as u64]);
            let done = BinaryArray::from(vec![packed.as_slice()]);
            Ok(RecordBatch::try_new(schema(), vec![Arc::new(place), Arc::new(done)])?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema(), rows)))
    }
}

/// An error as the engine understands it: what the disk or the object store said may be otherwise at the next attempt.
fn told(e: Error) -> DataFusionError {
    let text = format!("{MARK}{e}{END}");
    match e {
        Error::Io { source, .. } if source.kind() != std::io::ErrorKind::NotFound => {
            DataFusionError::IoError(std::io::Error::other(text))
        }
        Error::Objects(_) => DataFusionError::IoError(std::io::Error::other(text)),
        _ => DataFusionError::Execution(text),
    }
}
