//! Assembly as an operator of a DataFusion plan.
//!
//! ```text
//! scan of files, each sorted by trace                              -> AssembleExec by `trace_id`, sets others aside
//! rows set aside, with `task_key` -> hash partition -> sort by task -> AssembleExec by `task_key`
//! ```
//!
//! Nearly every task is one trace in one file: it is assembled as the file is read. Only rows of tasks of several files or traces
//! are set aside, in files, and then partitioned and sorted. The operator needs the rows of one key together and holds the rows of one task at a time. It gives
//! batches of one row whose columns are the lists of rows of each table, in the order of [`tables::all`]: no row
//! is copied when they are taken apart.

use foldhash::HashMap;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use baton_record::schema::{SpanColumns, SpanRef};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, ListArray, RecordBatch, StringViewArray, StringViewBuilder,
    StructArray,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{concat_batches, filter_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::{EnabledStatistics, WriterProperties};
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
use crate::group::{trace_key, trace_text};
use crate::tables::{self, Tables};

/// The column that groups rows of one task.
pub const TASK_KEY: &str = "task_key";

/// Rows of output held before they are given on.
const FLUSH: usize = 16 * 1024;

/// Traces whose rows are not assembled but written to files, one per partition.
#[derive(Debug)]
pub struct Aside {
    /// The traces, each with the key of its task.
    pub traces: HashMap<u128, u128>,
    /// Where their rows go: `<partition>.parquet`, in the layout of [`aside_schema`].
    pub dir: PathBuf,
}

/// The layout of rows set aside: that of `spans/`, and [`TASK_KEY`].
pub fn aside_schema() -> SchemaRef {
    let mut fields: Vec<FieldRef> = baton_record::schema::schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(TASK_KEY, DataType::Utf8View, false)));
    Arc::new(Schema::new(fields))
}

impl Aside {
    fn writer(&self, partition: usize) -> Result<ArrowWriter<File>> {
        let file = File::create(self.dir.join(format!("{partition:04}.parquet")))?;
        // Read once, soon: not worth the time of strong compression and of dictionaries.
        let properties = WriterProperties::builder()
            .set_compression(Compression::LZ4_RAW)
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_max_row_group_row_count(Some(ASIDE_ROWS))
            .build();
        Ok(ArrowWriter::try_new(file, aside_schema(), Some(properties))?)
    }
}

/// Rows in one group of a file of rows set aside: a part of them is held while it is written.
const ASIDE_ROWS: usize = 32 * 1024;

/// The operator.
#[derive(Debug)]
pub struct AssembleExec {
    input: Arc<dyn ExecutionPlan>,
    rules: Arc<Rules>,
    /// The column whose equal values are one task.
    key: &'static str,
    aside: Option<Arc<Aside>>,
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
        aside: Option<Arc<Aside>>,
    ) -> Self {
        let schema = output_schema();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { input, rules, key, aside, schema, properties: Arc::new(properties) }
    }

    /// Over a scan in which the rows of a trace stand together: every trace is a task, except those to be set aside.
    pub fn by_trace(input: Arc<dyn ExecutionPlan>, rules: Arc<Rules>, aside: Option<Aside>) -> Self {
        Self::new(input, rules, "trace_id", aside.map(Arc::new))
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
        Ok(Self::new(Arc::new(sorted), rules, TASK_KEY, None))
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
        Ok(Arc::new(Self::new(child, self.rules.clone(), self.key, self.aside.clone())))
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
            partition,
            aside: self.aside.clone(),
            writer: None,
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
    partition: usize,
    aside: Option<Arc<Aside>>,
    writer: Option<ArrowWriter<File>>,
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
                    if let Some(w) = self.writer.take() {
                        w.close()?;
                    }
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
        let mut apart = Vec::new();
        let mut rows: Vec<SpanRef<'_>> = Vec::new();
        for i in 1..=n {
            if i < n && keys.value(i) == keys.value(from) {
                continue;
            }
            if let Some(key) = self.aside.as_ref().and_then(|a| a.traces.get(&trace_key(keys.value(from)))) {
                apart.push((from..i, *key));
                from = i;
                continue;
            }
            if i == n {
                self.pending.push(batch.slice(from, n - from));
            } else if !self.pending.is_empty() {
                self.pending.push(batch.slice(0, i));
                self.complete()?;
            } else {
                rows.clear();
                rows.extend((from..i).map(|r| cols.span(r)));
                assemble(&self.rules, &rows, &mut self.tables);
            }
            from = i;
        }
        if apart.is_empty() { Ok(()) } else { self.set_aside(&batch, &apart) }
    }

    /// Writes the rows of some traces to this partition's file, all of a batch at once.
    fn set_aside(&mut self, batch: &RecordBatch, traces: &[(Range<usize>, u128)]) -> Result<()> {
        let Some(aside) = &self.aside else { return Ok(()) };
        let w = match &mut self.writer {
            Some(w) => w,
            none => none.insert(aside.writer(self.partition)?),
        };
        let mut picked = vec![false; batch.num_rows()];
        let mut keys = StringViewBuilder::new();
        for (rows, key) in traces {
            picked[rows.clone()].fill(true);
            let key = trace_text(*key);
            rows.clone().for_each(|_| keys.append_value(&key));
        }
        let rows = filter_record_batch(batch, &BooleanArray::from(picked))?;
        let mut columns = rows.columns().to_vec();
        columns.push(Arc::new(keys.finish()));
        Ok(w.write(&RecordBatch::try_new(aside_schema(), columns)?)?)
    }

    fn complete(&mut self) -> Result<()> {
        let parts = std::mem::take(&mut self.pending);
        let Some(first) = parts.first() else { return Ok(()) };
        let batch = if parts.len() == 1 { first.clone() } else { concat_batches(&first.schema(), &parts)? };
        let cols = SpanColumns::new(&batch)?;
        let rows: Vec<SpanRef<'_>> = (0..cols.len()).map(|r| cols.span(r)).collect();
        assemble(&self.rules, &rows, &mut self.tables);
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

fn keys(batch: &RecordBatch, key: &str) -> Result<StringViewArray> {
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
