//! Assembly as an operator of a DataFusion plan.
//!
//! ```text
//! scan of files, each sorted by trace                                                     -> AssembleExec by `trace_id`
//! scan -> traces that stand apart -> task of each trace -> hash partition -> sort by task -> AssembleExec by `task_key`
//! ```
//!
//! Nearly every task is one trace in one file: it is assembled as the file is read. Only tasks of several files or traces are
//! partitioned and sorted. The operator needs the rows of one key together and holds the rows of one task at a time. It gives
//! batches of one row whose columns are the lists of rows of each table, in the order of [`tables::all`]: no row
//! is copied when they are taken apart.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use baton_record::schema::{SpanColumns, SpanRef};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray, RecordBatch, StructArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, Partitioning, PlanProperties,
};
use futures::StreamExt;

use crate::assemble::{Rules, assemble};
use crate::group::trace_key;
use crate::tables::{self, Tables};

/// The column that groups rows of one task.
pub const TASK_KEY: &str = "task_key";

/// Rows of output held before they are given on.
const FLUSH: usize = 16 * 1024;

/// The operator.
#[derive(Debug)]
pub struct AssembleExec {
    input: Arc<dyn ExecutionPlan>,
    rules: Arc<Rules>,
    /// The column whose equal values are one task.
    key: &'static str,
    /// Traces that are left out: they are assembled elsewhere.
    skip: Arc<HashSet<u128>>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

fn output_schema() -> SchemaRef {
    let fields: Vec<Field> = tables::all()
        .into_iter()
        .map(|(name, f)| {
            Field::new(name, DataType::List(Arc::new(Field::new("item", DataType::Struct(f), true))), false)
        })
        .collect();
    Arc::new(Schema::new(fields))
}

impl AssembleExec {
    fn new(
        input: Arc<dyn ExecutionPlan>,
        rules: Arc<Rules>,
        key: &'static str,
        skip: Arc<HashSet<u128>>,
    ) -> Self {
        let schema = output_schema();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { input, rules, key, skip, schema, properties: Arc::new(properties) }
    }

    /// Over a scan in which the rows of a trace stand together: every trace is a task, except those in `skip`.
    pub fn by_trace(input: Arc<dyn ExecutionPlan>, rules: Arc<Rules>, skip: HashSet<u128>) -> Self {
        Self::new(input, rules, "trace_id", Arc::new(skip))
    }

    /// Over rows with a column [`TASK_KEY`] in any order: puts partitioning and sorting in front.
    ///
    /// # Errors
    /// Where the input has no such column.
    pub fn by_task(input: Arc<dyn ExecutionPlan>, partitions: usize, rules: Arc<Rules>) -> Result<Self> {
        let key: Arc<dyn PhysicalExpr> = Arc::new(Column::new_with_schema(TASK_KEY, &input.schema())?);
        let parted: Arc<dyn ExecutionPlan> = Arc::new(RepartitionExec::try_new(
            input,
            Partitioning::Hash(vec![key.clone()], partitions.max(1)),
        )?);
        let Some(ordering) = LexOrdering::new([PhysicalSortExpr::new_default(key)]) else {
            return Err(DataFusionError::Internal("no ordering".to_owned()));
        };
        let sorted = SortExec::new(ordering, parted).with_preserve_partitioning(true);
        Ok(Self::new(Arc::new(sorted), rules, TASK_KEY, Arc::default()))
    }
}

impl DisplayAs for AssembleExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AssembleExec")
    }
}

impl ExecutionPlan for AssembleExec {
    fn name(&self) -> &'static str {
        "AssembleExec"
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        // Of a scan by trace each file is read by one stream, which no expression can say.
        let need = if self.key == TASK_KEY {
            let key = Column::new_with_schema(TASK_KEY, &self.input.schema());
            key.map_or(Distribution::SinglePartition, |k| Distribution::KeyPartitioned(vec![Arc::new(k)]))
        } else {
            Distribution::UnspecifiedDistribution
        };
        InputDistributionRequirements::new(vec![need])
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
            .ok_or_else(|| DataFusionError::Internal("AssembleExec has one child".to_owned()))?;
        Ok(Arc::new(Self::new(child, self.rules.clone(), self.key, self.skip.clone())))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let state = State {
            input,
            rules: self.rules.clone(),
            key: self.key,
            skip: self.skip.clone(),
            schema: self.schema.clone(),
            pending: Vec::new(),
            tables: Tables::default(),
            done: false,
        };
        let stream = futures::stream::unfold(state, |mut s| async move {
            match s.next().await {
                Ok(Some(batch)) => Some((Ok(batch), s)),
                Ok(None) => None,
                Err(e) => {
                    s.done = true;
                    Some((Err(e), s))
                }
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream)))
    }
}

struct State {
    input: SendableRecordBatchStream,
    rules: Arc<Rules>,
    key: &'static str,
    skip: Arc<HashSet<u128>>,
    schema: SchemaRef,
    /// Rows of the task that is not complete yet.
    pending: Vec<RecordBatch>,
    tables: Tables,
    done: bool,
}

impl State {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while !self.done {
            match self.input.next().await {
                Some(batch) => self.take(batch?)?,
                None => {
                    self.done = true;
                    self.complete()?;
                    return if self.tables.is_empty() { Ok(None) } else { self.flush().map(Some) };
                }
            }
            if self.tables.len() >= FLUSH {
                return self.flush().map(Some);
            }
        }
        Ok(None)
    }

    /// Cuts a batch at the borders of tasks.
    fn take(&mut self, batch: RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let keys = keys(&batch, self.key)?;
        let n = batch.num_rows();
        let mut from = 0;
        // Does the first task of the batch go on from the one before?
        if let Some(last) = self.pending.last() {
            let before = self::keys(last, self.key)?;
            if before.value(before.len() - 1) != keys.value(0) {
                self.complete()?;
            }
        }
        let cols = SpanColumns::new(&batch)?;
        for i in 1..=n {
            if i < n && keys.value(i) == keys.value(from) {
                continue;
            }
            if !self.skip.is_empty() && self.skip.contains(&trace_key(keys.value(from))) {
                from = i;
                continue;
            }
            if i == n {
                self.pending.push(batch.slice(from, n - from));
            } else if !self.pending.is_empty() {
                self.pending.push(batch.slice(0, i));
                self.complete()?;
            } else {
                let rows: Vec<SpanRef<'_>> = (from..i).map(|r| cols.span(r)).collect();
                assemble(&self.rules, rows, &mut self.tables);
            }
            from = i;
        }
        Ok(())
    }

    fn complete(&mut self) -> Result<()> {
        let parts = std::mem::take(&mut self.pending);
        let Some(first) = parts.first() else { return Ok(()) };
        let batch = if parts.len() == 1 { first.clone() } else { concat_batches(&first.schema(), &parts)? };
        let cols = SpanColumns::new(&batch)?;
        let rows: Vec<SpanRef<'_>> = (0..cols.len()).map(|r| cols.span(r)).collect();
        assemble(&self.rules, rows, &mut self.tables);
        Ok(())
    }

    fn flush(&mut self) -> Result<RecordBatch> {
        let columns: Vec<ArrayRef> = self
            .tables
            .finish()?
            .into_iter()
            .map(|b| {
                let rows = StructArray::from(b);
                let field = Arc::new(Field::new("item", rows.data_type().clone(), true));
                Arc::new(ListArray::new(
                    field,
                    OffsetBuffer::from_lengths([rows.len()]),
                    Arc::new(rows),
                    None,
                )) as ArrayRef
            })
            .collect();
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }
}

fn keys(batch: &RecordBatch, key: &str) -> Result<datafusion::arrow::array::StringViewArray> {
    let c = batch.column_by_name(key).ok_or_else(|| DataFusionError::Internal(format!("no column {key}")))?;
    let c = datafusion::arrow::compute::cast(c, &DataType::Utf8View)?;
    Ok(c.as_string_view().clone())
}

/// Takes a batch of [`AssembleExec`] apart: the rows of each table, in the order of [`tables::all`].
pub fn rows_of(batch: &RecordBatch) -> Vec<RecordBatch> {
    batch
        .columns()
        .iter()
        .map(|c| RecordBatch::from(c.as_list::<i32>().values().as_struct().clone()))
        .collect()
}
