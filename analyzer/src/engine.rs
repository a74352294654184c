//! What does the parts of a refresh: this process, or the executors of a cluster.

use std::sync::Arc;

use futures::StreamExt;

use crate::session::{Error, Limits, Result};
use crate::work::{Done, Job, Part, Worker};

/// Where tables are assembled and measures summed. The tables are the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Engine {
    /// In this process.
    #[default]
    Local,
    /// On the executors of an Apache Ballista cluster, whose scheduler has this host and port.
    #[cfg(feature = "cluster")]
    Ballista(String),
}

impl Engine {
    /// Reads `local` or `ballista://HOST:PORT`.
    ///
    /// # Errors
    /// Where it is neither, or this program was built without the cluster.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(scheduler) = text.strip_prefix("ballista://") else {
            return match text {
                "local" => Ok(Self::Local),
                _ => Err(format!("`{text}`: an engine is `local` or `ballista://HOST:PORT`")),
            };
        };
        let named =
            scheduler.rsplit_once(':').filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        if named.is_none() {
            return Err(format!(
                "`{text}`: a scheduler has a host and a port, as in ballista://127.0.0.1:50050"
            ));
        }
        #[cfg(feature = "cluster")]
        return Ok(Self::Ballista(scheduler.to_owned()));
        #[cfg(not(feature = "cluster"))]
        Err("this program was built without the cluster: build it with `--features cluster`".to_owned())
    }

    /// Does parts, some at once, in any order.
    ///
    /// # Errors
    /// The first that one of them has.
    pub(crate) async fn run(
        &self,
        worker: &Arc<Worker>,
        job: &Job,
        parts: Vec<Part>,
        limits: &Limits,
    ) -> Result<Vec<Done>> {
        match self {
            Self::Local => {
                let jobs = parts.into_iter().map(|p| tokio::spawn(worker.clone().run(job.clone(), p)));
                let mut jobs = futures::stream::iter(jobs).buffer_unordered(limits.partitions.max(1));
                let mut out = Vec::new();
                while let Some(done) = jobs.next().await {
                    out.push(done.map_err(|_| Error::Worker)??);
                }
                Ok(out)
            }
            #[cfg(feature = "cluster")]
            Self::Ballista(scheduler) => crate::cluster::run(scheduler, worker, job, parts).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_read() {
        assert_eq!(Engine::parse("local"), Ok(Engine::Local));
        for wrong in
            ["", "spark://x:1", "ballista://", "ballista://host", "ballista://:50050", "ballista://h:port"]
        {
            assert!(Engine::parse(wrong).is_err_and(|e| e.contains(wrong)), "{wrong}");
        }
    }
}
