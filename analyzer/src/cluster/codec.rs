//! How the operator travels.

use std::sync::Arc;

use ballista_core::serde::BallistaPhysicalExtensionCodec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};

use super::exec::{Spec, WorkExec, Workers};
use crate::work::Part;

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
        let (spec, parts): (Spec, Vec<Part>) = postcard::from_bytes(ours)
            .map_err(|e| DataFusionError::Execution(format!("a part of another version of baton: {e}")))?;
        Ok(Arc::new(WorkExec::new(spec, parts, self.workers.clone())))
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
        let packed = postcard::to_allocvec(&(&ours.spec, &ours.parts));
        buf.extend(packed.map_err(|e| DataFusionError::External(Box::new(e)))?);
        Ok(())
    }
}
