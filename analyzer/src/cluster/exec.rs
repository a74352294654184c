//! Parts of a refresh as an operator: each is a row that comes in, packed, and goes out as what was done.
//!
//! The rows come from memory, a partition each: of such a source the engine gives every task its own partitions.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use baton_record::config::Config;
use datafusion::arrow::array::{ArrayRef, AsArray, BinaryArray, RecordBatch, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};
use futures::{StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

use crate::place::Place;
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
                let place = Place::open(Path::new(&spec.store))?;
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
    input: Arc<dyn ExecutionPlan>,
    workers: Arc<Workers>,
    properties: Arc<PlanProperties>,
}

/// Rows of parts, and of what they did: a place, and something packed.
fn schema() -> SchemaRef {
    let place = Field::new("place", DataType::UInt64, false);
    Arc::new(Schema::new(vec![place, Field::new("packed", DataType::Binary, false)]))
}

fn row<T: Serialize>(place: u64, of: &T) -> Result<RecordBatch> {
    let packed = postcard::to_allocvec(of).map_err(|e| DataFusionError::External(Box::new(e)))?;
    let columns: [ArrayRef; 2] =
        [Arc::new(UInt64Array::from(vec![place])), Arc::new(BinaryArray::from(vec![packed.as_slice()]))];
    Ok(RecordBatch::try_new(schema(), columns.to_vec())?)
}

/// The rows of a batch that [`row`] made.
///
/// # Errors
/// Where it is another one.
pub(super) fn unpacked<T: for<'a> Deserialize<'a>>(batch: &RecordBatch) -> Result<Vec<(u64, T)>> {
    let wrong = || DataFusionError::Execution("a row of another version of baton".to_owned());
    if batch.schema().fields() != schema().fields() {
        return Err(wrong());
    }
    let place = batch.column(0).as_primitive_opt::<UInt64Type>().ok_or_else(wrong)?;
    let packed = batch.column(1).as_binary_opt::<i32>().ok_or_else(wrong)?;
    (0..batch.num_rows())
        .map(|i| Ok((place.value(i), postcard::from_bytes(packed.value(i)).map_err(|_| wrong())?)))
        .collect()
}

impl WorkExec {
    /// Over parts, each a partition.
    ///
    /// # Errors
    /// Where one cannot be packed (a defect).
    pub(super) fn of(spec: Spec, parts: &[Part]) -> Result<Self> {
        let rows = parts.iter().enumerate().map(|(i, part)| Ok(vec![row(i as u64, part)?]));
        let rows: Vec<Vec<RecordBatch>> = rows.collect::<Result<_>>()?;
        Ok(Self::new(spec, MemorySourceConfig::try_new_exec(&rows, schema(), None)?, Arc::default()))
    }

    pub(super) fn new(spec: Spec, input: Arc<dyn ExecutionPlan>, workers: Arc<Workers>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema()),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { spec, input, workers, properties: Arc::new(properties) }
    }
}

/// True where rows come from memory, and no file is read.
pub(super) fn is_memory(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let source = plan.downcast_ref::<DataSourceExec>();
    source.is_some_and(|s| s.data_source().downcast_ref::<MemorySourceConfig>().is_some())
}

impl DisplayAs for WorkExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: store={}", self.name(), self.spec.store)
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
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let child = children
            .pop()
            .ok_or_else(|| DataFusionError::Internal(format!("{} has one child", self.name())))?;
        Ok(Arc::new(Self::new(self.spec.clone(), child, self.workers.clone())))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let parts = self.input.execute(partition, context.clone())?;
        let (spec, workers) = (self.spec.clone(), self.workers.clone());
        let rows = parts
            .map(|batch| unpacked::<Part>(&batch?))
            .map_ok(|parts| futures::stream::iter(parts).map(Ok))
            .try_flatten()
            .and_then(move |(place, part)| {
                work(spec.clone(), workers.clone(), context.runtime_env(), place, part)
            });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema(), rows)))
    }
}

async fn work(
    spec: Spec,
    workers: Arc<Workers>,
    runtime: Arc<RuntimeEnv>,
    place: u64,
    part: Part,
) -> Result<RecordBatch> {
    let worker = workers.of(&spec, runtime).await.map_err(told)?;
    let about = format!("part of {} {}: {part}", spec.store, spec.job.out);
    log::info!("{about}");
    let begun = Instant::now();
    let done = worker.run(spec.job, part).await.map_err(told)?;
    log::info!("{about} is done after {:.2} s", begun.elapsed().as_secs_f64());
    row(place, &done)
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
