//! The engine's own processes, with our operator registered and nothing else let in.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use ballista_core::JobId;
use ballista_core::config::TaskSchedulingPolicy;
use ballista_executor::execution_engine::{DefaultExecutionEngine, ExecutionEngine, QueryStageExecutor};
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::{SchedulerConfig, TaskDistributionPolicy};
use ballista_scheduler::scheduler_process::start_server;
use datafusion::catalog::Session;
use datafusion::error::{DataFusionError, Result as EngineResult};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;

use super::MESSAGE;
use super::codec::Codec;
use super::exec::{WorkExec, is_memory};
use crate::session::{Error, Result};

/// An executor that was not heard of for so many seconds is taken for dead; it polls at least every five.
const DEAD: u64 = 20;
/// Seconds between two looks for dead executors.
const LOOK: u64 = 2;
/// Seconds in which an executor has to come before work without one fails.
const ALONE: u64 = 60;
/// Seconds to reach the scheduler when an executor starts.
const CONNECT: u16 = 60;

/// A scheduler.
#[derive(Debug, Clone)]
pub struct Scheduler {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The name under which executors reach it.
    pub external_host: String,
}

impl Scheduler {
    /// Runs until the process is told to end.
    ///
    /// # Errors
    /// Where it cannot listen.
    pub async fn run(self) -> Result<()> {
        let config = SchedulerConfig {
            bind_host: self.listen.ip().to_string(),
            bind_port: self.listen.port(),
            external_host: self.external_host.clone(),
            // Executors ask for work: only they and the evaluation open connections, and none to where an executor calls from.
            scheduling_policy: TaskSchedulingPolicy::PullStaged,
            task_distribution: TaskDistributionPolicy::RoundRobin,
            executor_timeout_seconds: DEAD,
            expire_dead_executor_interval_seconds: LOOK,
            no_executors_grace_period_seconds: ALONE,
            grpc_server_max_decoding_message_size: MESSAGE as u32,
            grpc_server_max_encoding_message_size: MESSAGE as u32,
            grpc_client_max_message_size: MESSAGE as u32,
            override_physical_codec: Some(Arc::new(Codec::default())),
            override_session_builder: Some(Arc::new(|settings| {
                Ok(SessionStateBuilder::new()
                    .with_config(settings)
                    .with_query_planner(Arc::new(Refuse))
                    .build())
            })),
            ..SchedulerConfig::default()
        };
        let failed = |e: ballista_core::error::BallistaError| Error::Cluster {
            scheduler: self.listen.to_string(),
            reason: e.to_string(),
        };
        let cluster = BallistaCluster::new_from_config(&config).await.map_err(failed)?;
        start_server(cluster, self.listen, Arc::new(config)).await.map_err(failed)
    }
}

/// Plans no query: whoever reaches the port could read and write files with one.
#[derive(Debug)]
struct Refuse;

#[async_trait]
impl QueryPlanner for Refuse {
    async fn create_physical_plan(
        &self,
        _: &LogicalPlan,
        _: &dyn Session,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        Err(refused())
    }
}

fn refused() -> DataFusionError {
    DataFusionError::Plan("this cluster runs evaluations of baton alone".to_owned())
}

/// An executor.
#[derive(Debug, Clone)]
pub struct Executor {
    /// Host and port of the scheduler.
    pub scheduler: (String, u16),
    /// Where what parts did is fetched from.
    pub listen: SocketAddr,
    /// The name under which others reach it.
    pub external_host: String,
    /// Parts worked on at once.
    pub slots: usize,
    /// Memory of the query engine in bytes, for all slots together.
    pub memory: u64,
    /// Folder for what is under way.
    pub scratch: PathBuf,
}

impl Executor {
    /// Runs until the process is told to end: what is under way is finished first.
    ///
    /// # Errors
    /// Where it cannot listen or cannot reach the scheduler.
    pub async fn run(self) -> Result<()> {
        let config = ExecutorProcessConfig {
            bind_host: self.listen.ip().to_string(),
            port: self.listen.port(),
            external_host: Some(self.external_host),
            scheduler_host: self.scheduler.0.clone(),
            scheduler_port: self.scheduler.1,
            scheduler_connect_timeout_seconds: CONNECT,
            vcores: self.slots,
            task_scheduling_policy: TaskSchedulingPolicy::PullStaged,
            work_dir: Some(self.scratch.display().to_string()),
            // What parts did is small and asked for at once.
            job_data_ttl_seconds: 3600,
            job_data_clean_up_interval_seconds: 300,
            grpc_max_decoding_message_size: MESSAGE as u32,
            grpc_max_encoding_message_size: MESSAGE as u32,
            memory_pool_size: Some(self.memory),
            override_physical_codec: Some(Arc::new(Codec::default())),
            override_execution_engine: Some(Arc::new(OnlyOurs(DefaultExecutionEngine::new()))),
            ..ExecutorProcessConfig::default()
        };
        start_executor_process(Arc::new(config)).await.map_err(|e| Error::Cluster {
            scheduler: format!("{}:{}", self.scheduler.0, self.scheduler.1),
            reason: e.to_string(),
        })
    }
}

/// Runs plans that consist of our operator, and no other: with those of a query files could be read and written.
struct OnlyOurs(DefaultExecutionEngine);

impl ExecutionEngine for OnlyOurs {
    fn create_query_stage_exec(
        &self,
        job_id: JobId,
        stage_id: usize,
        task_id: usize,
        partitions: Vec<usize>,
        plan: Arc<dyn ExecutionPlan>,
        work_dir: &str,
        config: &SessionConfig,
    ) -> EngineResult<Arc<dyn QueryStageExecutor>> {
        if !is_ours(&plan) {
            return Err(refused());
        }
        self.0.create_query_stage_exec(job_id, stage_id, task_id, partitions, plan, work_dir, config)
    }
}

/// Under the engine's operators that only hand rows on, ours.
fn is_ours(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if plan.downcast_ref::<WorkExec>().is_some() {
        return plan.children().into_iter().all(is_memory);
    }
    const HANDS_ON: [&str; 4] =
        ["ShuffleWriterExec", "SortShuffleWriterExec", "CoalescePartitionsExec", "RuntimeStatsExec"];
    let children = plan.children();
    HANDS_ON.contains(&plan.name()) && !children.is_empty() && children.into_iter().all(is_ours)
}

#[cfg(test)]
mod tests {
    use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
    use datafusion::prelude::SessionContext;

    use super::super::exec::Spec;
    use super::*;

    #[tokio::test]
    async fn queries_are_refused_by_executors() -> EngineResult<()> {
        let query = SessionContext::new().sql("SELECT 1 AS a").await?.create_physical_plan().await?;
        let spec = Spec {
            build: String::new(),
            store: String::new(),
            config: String::new(),
            job: Default::default(),
        };
        let ours: Arc<dyn ExecutionPlan> = Arc::new(WorkExec::of(spec.clone(), &[])?);
        let over_a_query: Arc<dyn ExecutionPlan> =
            Arc::new(WorkExec::new(spec, query.clone(), Arc::default()));
        assert!(is_ours(&ours));
        assert!(is_ours(&(Arc::new(CoalescePartitionsExec::new(ours)) as Arc<dyn ExecutionPlan>)));
        for plan in [query.clone(), over_a_query, Arc::new(CoalescePartitionsExec::new(query))] {
            assert!(!is_ours(&plan));
            let engine = OnlyOurs(DefaultExecutionEngine::new());
            let job = JobId::from("job".to_owned());
            let made = engine.create_query_stage_exec(job, 0, 0, vec![0], plan, "/", &SessionConfig::new());
            assert!(made.is_err_and(|e| e.to_string().contains("evaluations of baton alone")));
        }
        Ok(())
    }

    #[tokio::test]
    async fn queries_are_refused_by_the_scheduler() -> EngineResult<()> {
        let state =
            SessionStateBuilder::new_with_default_features().with_query_planner(Arc::new(Refuse)).build();
        let ctx = SessionContext::new_with_state(state);
        for sql in ["SELECT 1", "COPY (VALUES (1)) TO '/tmp/x.csv'"] {
            let said = ctx.sql(sql).await?.collect().await;
            assert!(said.is_err_and(|e| e.to_string().contains("evaluations of baton alone")), "{sql}");
        }
        Ok(())
    }
}
