//! Statements: each within its time and memory, ended where it is cancelled or nobody waits for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion_postgres::hooks::set_show::SetShowHook;
use datafusion_postgres::hooks::transactions::TransactionStatementHook;
use datafusion_postgres::pgwire::api::portal::Portal;
use datafusion_postgres::pgwire::api::query::{ExtendedQueryHandler, SimpleQueryHandler};
use datafusion_postgres::pgwire::api::results::Response;
use datafusion_postgres::pgwire::api::store::PortalStore;
use datafusion_postgres::pgwire::api::{ClientInfo, ClientPortalStore, ErrorHandler};
use datafusion_postgres::pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use datafusion_postgres::pgwire::messages::PgWireBackendMessage;
use datafusion_postgres::pgwire::messages::extendedquery::Execute;
use datafusion_postgres::pgwire::messages::simplequery::Query;
use datafusion_postgres::{DfSessionService, Parser, QueryHook};
use futures::Sink;
use tokio::time::sleep;

use super::Shared;
use super::bounds::{Ended, Interruptible};
use super::connection::Ends;
use super::cursor::Cursors;
use super::guard::{Guard, Reading};

/// A statement as the protocol's crate keeps it.
pub(super) type Statement = (String, Option<(ast::Statement, LogicalPlan)>);

/// The statements of one connection.
pub(super) struct Service {
    inner: DfSessionService,
    shared: Arc<Shared>,
    ends: Arc<Ends>,
    ended: Ended,
}

impl Service {
    pub(super) fn new(shared: &Arc<Shared>, ends: Arc<Ends>) -> Self {
        // Settings are the connection's own; tables, functions and memory are those of all.
        let ended = Ended::default();
        let state = SessionStateBuilder::new_from_existing(shared.ctx.state())
            .with_physical_optimizer_rule(Arc::new(Interruptible(ended.clone())))
            .build();
        let ctx = Arc::new(SessionContext::new_with_state(state));
        let hooks: Vec<Arc<dyn QueryHook>> = vec![
            Arc::new(Guard),
            Arc::new(Cursors),
            Arc::new(SetShowHook),
            Arc::new(TransactionStatementHook),
            Arc::new(Reading),
        ];
        Self { inner: DfSessionService::new_with_hooks(ctx, hooks), shared: shared.clone(), ends, ended }
    }

    /// How long a statement may take: what the client asked for, if that is less than the server allows.
    fn allowed<C: ClientInfo>(&self, client: &C) -> Duration {
        let asked = client.metadata().get("statement_timeout_ms").and_then(|ms| ms.parse().ok());
        let most = self.shared.settings.statement_timeout;
        asked.map(Duration::from_millis).filter(|t| !t.is_zero()).map_or(most, |t| t.min(most))
    }

    /// Waits for what ends a statement before its time, and says which it was.
    async fn ended(&self, allowed: Duration) -> PgWireError {
        tokio::select! {
            () = sleep(allowed) => error("57014", format!("canceling statement due to statement timeout after {allowed:?}")),
            () = self.ends.cancelled() => error("57014", "canceling statement due to user request".to_owned()),
            () = self.ends.gone() => error("57014", "the client is gone".to_owned()),
        }
    }
}

pub(super) fn error(code: &str, what: String) -> PgWireError {
    PgWireError::UserError(Box::new(ErrorInfo::new("ERROR".to_owned(), code.to_owned(), what)))
}

/// Runs a statement within its bounds. A macro, since the statement borrows the client.
macro_rules! bounded {
    ($self:ident, $client:ident, $statement:expr) => {{
        let allowed = $self.allowed($client);
        let (pid, secret) = $client.pid_and_secret_key();
        let _run = $self.shared.running.begin(pid, &secret, $self.ends.clone());
        let statement = async {
            let _turn = $self.shared.statements.acquire().await;
            $statement.await
        };
        tokio::select! {
            biased;
            e = $self.ended(allowed) => {
                $self.ended.now();
                Err(e)
            }
            done = statement => done,
        }
    }};
}

#[async_trait]
impl SimpleQueryHandler for Service {
    async fn on_query<C>(&self, client: &mut C, query: Query) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: fmt::Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        bounded!(self, client, self._on_query(client, query))
    }

    async fn do_query<C>(&self, client: &mut C, query: &str) -> PgWireResult<Vec<Response>>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: fmt::Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        SimpleQueryHandler::do_query(&self.inner, client, query).await
    }
}

#[async_trait]
impl ExtendedQueryHandler for Service {
    type Statement = Statement;
    type QueryParser = Parser;

    fn query_parser(&self) -> Arc<Self::QueryParser> {
        self.inner.query_parser()
    }

    async fn on_execute<C>(&self, client: &mut C, message: Execute) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: fmt::Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        bounded!(self, client, self._on_execute(client, message))
    }

    async fn do_query<C>(
        &self,
        client: &mut C,
        portal: &Portal<Self::Statement>,
        max_rows: usize,
    ) -> PgWireResult<Response>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: fmt::Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        ExtendedQueryHandler::do_query(&self.inner, client, portal, max_rows).await
    }
}

/// Gives errors of the engine the codes that clients know.
pub(super) struct Errors;

impl ErrorHandler for Errors {
    fn on_error<C>(&self, _client: &C, e: &mut PgWireError)
    where
        C: ClientInfo,
    {
        let PgWireError::ApiError(inner) = &*e else { return };
        if let Some(engine) = inner.downcast_ref::<DataFusionError>() {
            *e = of_engine(engine);
        } else if let Some(wrong) = inner.downcast_ref::<ParserError>() {
            *e = error("42601", wrong.to_string());
        }
    }
}

/// An error of the engine with its SQLSTATE.
pub(super) fn of_engine(e: &DataFusionError) -> PgWireError {
    let what = e.strip_backtrace();
    let code = match e.find_root() {
        DataFusionError::SQL(..) => "42601",
        DataFusionError::SchemaError(..) => "42703",
        DataFusionError::Plan(m) if m.contains("not found") && m.contains("table") => "42P01",
        DataFusionError::Plan(m) if m.contains("Invalid function") => "42883",
        DataFusionError::Plan(_) => "42000",
        DataFusionError::NotImplemented(_) => "0A000",
        DataFusionError::ResourcesExhausted(_) => "53200",
        DataFusionError::ArrowError(..) | DataFusionError::Execution(_) => "22000",
        _ => "XX000",
    };
    error(code, what)
}
