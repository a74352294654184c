//! How the operator travels.

use std::sync::Arc;

use ballista_core::serde::BallistaPhysicalExtensionCodec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};

use super::exec::{Spec, WorkExec, Workers};

/// Begins what is ours; the engine's own operators are written as it does it.
const OURS: &[u8] = b"\0baton\x01";

/// Writes and reads [`WorkExec`], and leaves the rest to the engine.
#[derive(Debug, Default)]
pub(super) struct Codec {
    engine: BallistaPhysicalExtensionCodec,
    workers: Arc<Workers>,
}

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        ctx: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(ours) = buf.strip_prefix(OURS) else {
            return self.engine.try_decode(buf, inputs, ctx, converter);
        };
        let spec: Spec = postcard::from_bytes(ours)
            .map_err(|e| DataFusionError::Execution(format!("parts of another version of baton: {e}")))?;
        let [input] = inputs else {
            return Err(DataFusionError::Execution("parts come from one place".to_owned()));
        };
        Ok(Arc::new(WorkExec::new(spec, input.clone(), self.workers.clone())))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let Some(ours) = node.downcast_ref::<WorkExec>() else {
            return self.engine.try_encode(node, buf, converter);
        };
        buf.extend_from_slice(OURS);
        let packed = postcard::to_allocvec(&ours.spec);
        buf.extend(packed.map_err(|e| DataFusionError::External(Box::new(e)))?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::prelude::SessionContext;
    use datafusion_proto::physical_plan::AsExecutionPlan;
    use datafusion_proto::protobuf::PhysicalPlanNode;

    use futures::StreamExt;

    use super::super::exec::unpacked;
    use super::*;
    use crate::work::{BUILD, Job, Part};

    #[tokio::test]
    async fn what_travels_arrives() -> Result<()> {
        let job = Job { out: "tables/7".to_owned(), refresh: 7, buckets: 2, named: None, filter: None };
        let (store, config) = ("s3://b/p".to_owned(), "content = 'none'".to_owned());
        let spec = Spec { build: BUILD.to_owned(), store, config, job };
        let parts = vec![
            Part::Traces(vec!["spans/a.parquet".to_owned()]),
            Part::Assemble { number: 1, files: vec!["spans/b.parquet".to_owned()], older: true },
            Part::Bucket { number: 2, files: Vec::new() },
        ];
        let (codec, ctx) = (Codec::default(), SessionContext::new());
        let plan = Arc::new(WorkExec::of(spec, &parts)?);
        let node = PhysicalPlanNode::try_from_physical_plan(plan, &codec)?;
        let back = node.try_into_physical_plan(&ctx.task_ctx(), &codec)?;
        let back = back.downcast_ref::<WorkExec>().expect("the same operator");
        let mut arrived = Vec::new();
        for i in 0..3 {
            let mut rows = back.children()[0].execute(i, ctx.task_ctx())?;
            while let Some(batch) = rows.next().await {
                arrived.extend(unpacked::<Part>(&batch?)?);
            }
        }
        assert_eq!(arrived, (0..).zip(parts).collect::<Vec<_>>());
        assert_eq!((back.spec.store.as_str(), back.spec.job.refresh), ("s3://b/p", 7));
        // One row for each part.
        assert_eq!(back.properties().partitioning.partition_count(), 3);

        // The engine's own go its way, and what is neither is an error.
        let empty = Arc::new(EmptyExec::new(Arc::new(datafusion::arrow::datatypes::Schema::empty())));
        let node = PhysicalPlanNode::try_from_physical_plan(empty, &codec)?;
        assert!(node.try_into_physical_plan(&ctx.task_ctx(), &codec)?.downcast_ref::<EmptyExec>().is_some());
        let converter = datafusion_proto::physical_plan::DefaultPhysicalProtoConverter {};
        let damaged = [OURS, &[9, 9, 9]].concat();
        for bytes in [&damaged[..], b"", b"nonsense"] {
            assert!(codec.try_decode(bytes, &[], &ctx.task_ctx(), &converter).is_err());
        }
        Ok(())
    }
}
