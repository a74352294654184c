//! Only reading: what else a statement may hold is refused before it is planned.

use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::common::{DFSchema, ParamValues};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{EmptyRelation, LogicalPlan};
use datafusion::prelude::{SQLOptions, SessionContext};
use datafusion::sql::parser;
use datafusion::sql::sqlparser::ast::{Query, Select, SetExpr, Statement, Visit, Visitor};
use datafusion_postgres::QueryHook;
use datafusion_postgres::arrow_pg::datatypes::df::encode_dataframe;
use datafusion_postgres::hooks::HookClient;
use datafusion_postgres::pgwire::api::ClientInfo;
use datafusion_postgres::pgwire::api::portal::Format;
use datafusion_postgres::pgwire::api::results::{Response, Tag};
use datafusion_postgres::pgwire::error::{PgWireError, PgWireResult};
use datafusion_postgres::pgwire::types::format::FormatOptions;

use super::query::{error, of_engine};

/// Refuses what does not only read. Goes before all others.
#[derive(Debug)]
pub(super) struct Guard;

/// Plans and runs what the others leave, and checks the plan once more.
#[derive(Debug)]
pub(super) struct Reading;

/// Why a statement is refused; `None`: it may run.
fn refused(statement: &Statement) -> Option<PgWireError> {
    let writes = |what: &str| error("25006", format!("cannot execute {what}: this server only reads"));
    match statement {
        Statement::Query(_) | Statement::Explain { .. } | Statement::Declare { .. } => {
            struct Writes(Option<&'static str>);
            impl Visitor for Writes {
                type Break = ();
                fn pre_visit_statement(&mut self, s: &Statement) -> ControlFlow<()> {
                    let reads = matches!(
                        s,
                        Statement::Query(_) | Statement::Explain { .. } | Statement::Declare { .. }
                    );
                    self.note(!reads, "a statement inside of another")
                }
                fn pre_visit_query(&mut self, q: &Query) -> ControlFlow<()> {
                    self.note(!reads(&q.body), "INSERT, UPDATE, DELETE or MERGE inside of a query")
                }
                fn pre_visit_select(&mut self, s: &Select) -> ControlFlow<()> {
                    self.note(s.into.is_some(), "SELECT INTO")
                }
            }
            impl Writes {
                fn note(&mut self, writes: bool, what: &'static str) -> ControlFlow<()> {
                    if writes {
                        self.0 = Some(what);
                        return ControlFlow::Break(());
                    }
                    ControlFlow::Continue(())
                }
            }
            fn reads(body: &SetExpr) -> bool {
                match body {
                    SetExpr::SetOperation { left, right, .. } => reads(left) && reads(right),
                    SetExpr::Select(_) | SetExpr::Query(_) | SetExpr::Values(_) | SetExpr::Table(_) => true,
                    _ => false,
                }
            }
            let mut found = Writes(None);
            let _ = statement.visit(&mut found);
            found.0.map(writes)
        }
        Statement::Set(_) => {
            // Settings of the engine are the server's, among them its memory and its files.
            let text = statement.to_string().to_lowercase();
            (text.contains("datafusion.") || text.contains("\"datafusion\""))
                .then(|| error("42501", "permission denied to set parameters of the engine".to_owned()))
        }
        Statement::ShowVariable { .. }
        | Statement::ShowStatus { .. }
        | Statement::ShowCatalogs { .. }
        | Statement::StartTransaction { .. }
        | Statement::Commit { .. }
        | Statement::Rollback { .. }
        | Statement::Savepoint { .. }
        | Statement::ReleaseSavepoint { .. }
        | Statement::Fetch { .. }
        | Statement::Close { .. } => None,
        s if tidies(s).is_some() => None,
        s => {
            let text = s.to_string();
            let verb: Vec<&str> = text.split_whitespace().take(2).collect();
            Some(writes(&verb.join(" ")))
        }
    }
}

/// What pools of connections send to leave one as new: there is nothing to do.
fn tidies(statement: &Statement) -> Option<&'static str> {
    match statement {
        Statement::Reset { .. } => Some("RESET"),
        Statement::Discard { .. } => Some("DISCARD ALL"),
        Statement::UNLISTEN { .. } => Some("UNLISTEN"),
        Statement::Deallocate { .. } => Some("DEALLOCATE"),
        _ => None,
    }
}

pub(super) fn nothing() -> LogicalPlan {
    LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema: Arc::new(DFSchema::empty()) })
}

#[async_trait]
impl QueryHook for Guard {
    async fn handle_simple_query(
        &self,
        statement: &Statement,
        _ctx: &SessionContext,
        _client: &mut dyn HookClient,
    ) -> Option<PgWireResult<Response>> {
        match refused(statement) {
            Some(e) => Some(Err(e)),
            None => tidies(statement).map(|tag| Ok(Response::Execution(Tag::new(tag)))),
        }
    }

    async fn handle_extended_parse_query(
        &self,
        statement: &Statement,
        _ctx: &SessionContext,
        _client: &(dyn ClientInfo + Send + Sync),
    ) -> Option<PgWireResult<LogicalPlan>> {
        match refused(statement) {
            Some(e) => Some(Err(e)),
            None => tidies(statement).map(|_| Ok(nothing())),
        }
    }

    async fn handle_extended_query(
        &self,
        statement: &Statement,
        _plan: &LogicalPlan,
        _params: &ParamValues,
        _ctx: &SessionContext,
        _client: &mut dyn HookClient,
    ) -> Option<PgWireResult<Response>> {
        tidies(statement).map(|tag| Ok(Response::Execution(Tag::new(tag))))
    }
}

fn only_reads(plan: &LogicalPlan) -> Result<(), DataFusionError> {
    SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false)
        .verify_plan(plan)
}

fn readable(statement: &Statement) -> bool {
    matches!(statement, Statement::Query(_) | Statement::Explain { .. })
}

pub(super) async fn plan(ctx: &SessionContext, statement: &Statement) -> PgWireResult<LogicalPlan> {
    let parsed = parser::Statement::Statement(Box::new(statement.clone()));
    let plan = ctx.state().statement_to_plan(parsed).await.map_err(|e| of_engine(&e))?;
    only_reads(&plan).map_err(|e| error("25006", e.strip_backtrace()))?;
    Ok(plan)
}

#[async_trait]
impl QueryHook for Reading {
    async fn handle_simple_query(
        &self,
        statement: &Statement,
        ctx: &SessionContext,
        client: &mut dyn HookClient,
    ) -> Option<PgWireResult<Response>> {
        if !readable(statement) {
            return None;
        }
        let run = async {
            let plan = plan(ctx, statement).await?;
            let frame = ctx.execute_logical_plan(plan).await.map_err(|e| of_engine(&e))?;
            let options = Arc::new(FormatOptions::from_client_metadata(client.metadata()));
            Ok(Response::Query(encode_dataframe(frame, &Format::UnifiedText, Some(options)).await?))
        };
        Some(run.await)
    }

    async fn handle_extended_parse_query(
        &self,
        statement: &Statement,
        ctx: &SessionContext,
        _client: &(dyn ClientInfo + Send + Sync),
    ) -> Option<PgWireResult<LogicalPlan>> {
        if !readable(statement) {
            return None;
        }
        Some(plan(ctx, statement).await)
    }

    async fn handle_extended_query(
        &self,
        _statement: &Statement,
        _plan: &LogicalPlan,
        _params: &ParamValues,
        _ctx: &SessionContext,
        _client: &mut dyn HookClient,
    ) -> Option<PgWireResult<Response>> {
        None
    }
}
