//! What the engine leaves without bounds: operators that do not look up, and functions that make much of little.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::length::length;
use datafusion::arrow::datatypes::{DataType, FieldRef, Int64Type, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, exec_err, resources_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::prelude::SessionContext;

/// Counts how often a connection's statements were ended before their time: work that began before such an end stops.
#[derive(Debug, Clone, Default)]
pub(super) struct Ended(Arc<AtomicU64>);

impl Ended {
    pub(super) fn now(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Lets a statement be ended wherever it makes many rows of few. The engine sees to that at the leaves of a plan alone: a join that
/// makes rows for hours out of what it has read, or looks for pairs that there are not, would never look up.
#[derive(Debug)]
pub(super) struct Interruptible(pub(super) Ended);

impl Interruptible {
    fn heeding(&self, join: &NestedLoopJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(filter) = join.filter() else { return Ok(None) };
        let expression =
            Heeding { inner: filter.expression().clone(), ended: self.0.clone(), began: self.0.count() };
        let filter =
            JoinFilter::new(Arc::new(expression), filter.column_indices().to_vec(), filter.schema().clone());
        let projection = join.projection().as_ref().map(|p| p.to_vec());
        let (left, right) = (join.left().clone(), join.right().clone());
        let join = NestedLoopJoinExec::try_new(left, right, Some(filter), join.join_type(), projection)?;
        Ok(Some(Arc::new(join)))
    }
}

impl PhysicalOptimizerRule for Interruptible {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let wrapped = plan.transform_up(|p| {
            if p.children().len() < 2 && p.name() != "UnnestExec" {
                return Ok(Transformed::no(p));
            }
            let heeding = match p.downcast_ref::<NestedLoopJoinExec>() {
                Some(join) => self.heeding(join)?,
                None => None,
            };
            let p = heeding.unwrap_or(p);
            Ok(Transformed::yes(Arc::new(CooperativeExec::new(p)) as Arc<dyn ExecutionPlan>))
        })?;
        Ok(wrapped.data)
    }

    fn name(&self) -> &str {
        "interruptible"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// An expression that fails once its statement was ended.
#[derive(Debug, Clone)]
struct Heeding {
    inner: Arc<dyn PhysicalExpr>,
    ended: Ended,
    began: u64,
}

impl PartialEq for Heeding {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Eq for Heeding {}

impl Hash for Heeding {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl fmt::Display for Heeding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PhysicalExpr for Heeding {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.inner.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.inner.nullable(schema)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.inner.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        if self.ended.count() != self.began {
            return exec_err!("the statement was ended");
        }
        self.inner.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match children.pop() {
            Some(inner) => Ok(Arc::new(Self { inner, ended: self.ended.clone(), began: self.began })),
            None => Ok(self),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}

/// Bytes that one call may make, over all rows of a batch. What functions make is in no account of the engine.
const MADE: i64 = 64 << 20;

/// How much a function makes, by its arguments.
type Made = fn(&[ArrayRef]) -> Result<i64>;

const GROWING: [(&str, Made); 6] = [
    ("repeat", repeated),
    ("lpad", padded),
    ("rpad", padded),
    ("array_repeat", listed),
    ("range", counted),
    ("generate_series", counted),
];

/// Puts a bound on functions that make much of little.
pub(super) fn bound_functions(ctx: &SessionContext) {
    let state = ctx.state();
    for (name, made) in GROWING {
        if let Some(inner) = state.scalar_functions().get(name) {
            ctx.register_udf(ScalarUDF::new_from_impl(Bounded { inner: inner.clone(), made }));
        }
    }
}

#[derive(Debug, Clone)]
struct Bounded {
    inner: Arc<ScalarUDF>,
    made: Made,
}

impl PartialEq for Bounded {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl Eq for Bounded {}

impl Hash for Bounded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        self.inner.return_type(args)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn coerce_types(&self, args: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let made = (self.made)(&ColumnarValue::values_to_arrays(&args.args)?)?;
        if made > MADE {
            return resources_err!("{} would make {made} bytes at once; {MADE} are allowed", self.name());
        }
        self.inner.invoke_with_args(args)
    }
}

/// The numbers of an argument; none where it is not given or of no kind that counts.
fn numbers(args: &[ArrayRef], place: usize) -> Vec<Option<i64>> {
    let column = args.get(place).filter(|c| c.data_type().is_numeric());
    let Some(Ok(column)) = column.map(|c| cast(c, &DataType::Int64)) else { return Vec::new() };
    column.as_primitive::<Int64Type>().iter().collect()
}

fn total(sizes: impl Iterator<Item = i64>) -> i64 {
    sizes.fold(0, i64::saturating_add)
}

fn repeated(args: &[ArrayRef]) -> Result<i64> {
    let Some(text) = args.first().filter(|t| !t.data_type().is_null()) else { return Ok(0) };
    let lengths = cast(&length(cast(text, &DataType::Utf8View)?.as_ref())?, &DataType::Int64)?;
    let lengths = lengths.as_primitive::<Int64Type>();
    let times = numbers(args, 1);
    Ok(total(lengths.iter().zip(times).map(|(l, n)| l.unwrap_or(0).saturating_mul(n.unwrap_or(0).max(0)))))
}

fn padded(args: &[ArrayRef]) -> Result<i64> {
    // A character has four bytes at most.
    Ok(total(numbers(args, 1).into_iter().map(|n| n.unwrap_or(0).max(0).saturating_mul(4))))
}

fn listed(args: &[ArrayRef]) -> Result<i64> {
    let each = args.first().map_or(0, |a| a.get_array_memory_size() / a.len().max(1));
    let each = i64::try_from(each).unwrap_or(i64::MAX).max(8);
    Ok(total(numbers(args, 1).into_iter().map(|n| n.unwrap_or(0).max(0).saturating_mul(each))))
}

fn counted(args: &[ArrayRef]) -> Result<i64> {
    let first = numbers(args, 0);
    if args.len() == 1 {
        return Ok(total(first.into_iter().map(|n| n.unwrap_or(0).saturating_abs().saturating_mul(8))));
    }
    let steps = numbers(args, 2);
    let size = |(i, (from, to)): (usize, (&Option<i64>, &Option<i64>))| {
        let step = steps.get(i).copied().flatten().unwrap_or(1).saturating_abs().max(1);
        let (from, to) = (from.unwrap_or(0), to.unwrap_or(0));
        (to.saturating_sub(from).saturating_abs() / step).saturating_mul(8)
    };
    Ok(total(first.iter().zip(&numbers(args, 1)).enumerate().map(size)))
}
