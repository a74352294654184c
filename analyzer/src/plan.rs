//! Assembly as an operator of a DataFusion plan: over a scan of files, each of which is sorted by trace.
//!
//! Nearly every task is one trace in one file: it is assembled as the file is read. Only rows of tasks of several files or
//! traces are set aside ([`crate::aside`]). The operator needs the rows of one trace together and holds the batches that the
//! trace under way stands in. It gives batches of one row whose columns are the lists of rows of each table, in the order of
//! [`tables::all`]: no row is copied when they are taken apart.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use baton_record::schema::{Contents, SpanColumns, SpanRef};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray, RecordBatch, StructArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};
use futures::StreamExt;

use crate::aside::{Aside, Writer};
use crate::assemble::{Rules, assemble};
use crate::tables::{self, Tables};

/// Rows of output held before they are given on.
const FLUSH: usize = 16 * 1024;

/// The operator.
#[derive(Debug)]
pub struct AssembleExec {
    input: Arc<dyn ExecutionPlan>,
    rules: Arc<Rules>,
    aside: Option<Arc<Aside>>,
    /// Number of the first stream among all that set rows aside.
    first: usize,
    only_aside: bool,
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
    /// Over a scan in which the rows of a trace stand together: every trace is a task, except those to be set aside. `first`: how many
    /// streams set rows aside beside those of this operator. `only_aside`: no other trace is assembled.
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        rules: Arc<Rules>,
        aside: Option<Arc<Aside>>,
        first: usize,
        only_aside: bool,
    ) -> Self {
        let schema = output_schema();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { input, rules, aside, first, only_aside, schema, properties: Arc::new(properties) }
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
        Ok(Arc::new(Self::new(child, self.rules.clone(), self.aside.clone(), self.first, self.only_aside)))
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
            aside: self.aside.clone().map(|a| Writer::new(a, self.first + partition)),
            only_aside: self.only_aside,
            pending: Vec::new(),
            assembler: Assembler::new(self.rules.clone()),
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
    aside: Option<Writer>,
    only_aside: bool,
    /// Rows of the trace that is not complete yet.
    pending: Vec<(SpanColumns, Range<usize>)>,
    assembler: Assembler,
    done: bool,
}

impl State {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while !self.done {
            match self.input.next().await {
                Some(batch) => self.take(&batch?)?,
                None => {
                    self.done = true;
                    self.complete();
                    if let Some(w) = self.aside.take() {
                        w.close()?;
                    }
                    return self.assembler.flush();
                }
            }
            if self.assembler.is_full() {
                return self.assembler.flush();
            }
        }
        Ok(None)
    }

    /// Cuts a batch at the borders of traces.
    fn take(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns = SpanColumns::new(batch)?;
        let n = columns.len();
        if n == 0 {
            return Ok(());
        }
        // Does the first trace of the batch go on from the one before?
        if self.pending.last().is_some_and(|(c, r)| c.trace_id(r.start) != columns.trace_id(0)) {
            self.complete();
        }
        let mut apart = Vec::new();
        let (mut rows, mut contents): (Vec<SpanRef<'_>>, Contents<'_>) = Default::default();
        let mut from = 0;
        let mut rest = 0..0;
        for i in 1..=n {
            if i < n && columns.trace_id(i) == columns.trace_id(from) {
                continue;
            }
            if let Some(task) = self.aside.as_ref().and_then(|w| w.aside().task(columns.trace_id(from))) {
                apart.push((from..i, task));
            } else if self.only_aside {
                // It stands in the tables already.
            } else if i == n {
                rest = from..n;
            } else {
                rows.clear();
                rows.extend((from..i).map(|row| columns.span(row)));
                if self.pending.is_empty() {
                    self.assembler.add(&rows, &mut contents);
                } else {
                    self.assembler.add(&joined(&self.pending, &rows), &mut Contents::default());
                    self.pending.clear();
                }
            }
            from = i;
        }
        if let Some(w) = self.aside.as_mut().filter(|_| !apart.is_empty()) {
            w.write(batch, &apart)?;
        }
        if !rest.is_empty() {
            self.pending.push((columns, rest));
        }
        Ok(())
    }

    fn complete(&mut self) {
        if !self.pending.is_empty() {
            self.assembler.add(&joined(&self.pending, &[]), &mut Contents::default());
            self.pending.clear();
        }
    }
}

fn joined<'a>(pending: &'a [(SpanColumns, Range<usize>)], more: &[SpanRef<'a>]) -> Vec<SpanRef<'a>> {
    let first = pending.iter().flat_map(|(c, rows)| rows.clone().map(|row| c.span(row)));
    first.chain(more.iter().copied()).collect()
}

/// Tables under construction.
pub(crate) struct Assembler {
    rules: Arc<Rules>,
    tables: Tables,
    schema: SchemaRef,
}

impl Assembler {
    pub(crate) fn new(rules: Arc<Rules>) -> Self {
        Self { rules, tables: Tables::default(), schema: output_schema() }
    }

    /// Assembles the rows of one task; `contents` serves to allocate less for many.
    pub(crate) fn add<'a>(&mut self, rows: &[SpanRef<'a>], contents: &mut Contents<'a>) {
        contents.collect(rows);
        assemble(&self.rules, rows, contents, &mut self.tables);
    }

    /// True where so much is held that it should be given on.
    pub(crate) fn is_full(&self) -> bool {
        self.tables.len() >= FLUSH
    }

    /// The rows so far, which are then no longer held; `None` where there are none.
    pub(crate) fn flush(&mut self) -> Result<Option<RecordBatch>> {
        if self.tables.is_empty() {
            return Ok(None);
        }
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
        Ok(Some(RecordBatch::try_new(self.schema.clone(), columns)?))
    }
}

/// Takes a batch of [`AssembleExec`] apart: the rows of each table, in the order of [`tables::all`].
pub fn rows_of(batch: &RecordBatch) -> Vec<RecordBatch> {
    batch
        .columns()
        .iter()
        .map(|c| RecordBatch::from(c.as_list::<i32>().values().as_struct().clone()))
        .collect()
}
