//! Cursors by statement (`DECLARE`, `FETCH`, `CLOSE`). Those of the protocol's crate lose their columns: a client that asks for them, or
//! fetches behind the last row, is told that there are none, and some then crash.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::common::ParamValues;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{
    CloseCursor, Declare, DeclareType, FetchDirection, Ident, Statement, Value,
};
use datafusion_postgres::QueryHook;
use datafusion_postgres::arrow_pg::datatypes::arrow_schema_to_pg_fields;
use datafusion_postgres::arrow_pg::datatypes::df::encode_dataframe;
use datafusion_postgres::hooks::HookClient;
use datafusion_postgres::pgwire::api::ClientInfo;
use datafusion_postgres::pgwire::api::portal::{Format, Portal};
use datafusion_postgres::pgwire::api::results::{QueryResponse, Response, Tag};
use datafusion_postgres::pgwire::api::stmt::StoredStatement;
use datafusion_postgres::pgwire::api::store::PortalStore;
use datafusion_postgres::pgwire::error::PgWireResult;
use datafusion_postgres::pgwire::types::format::FormatOptions;

use super::guard;
use super::query::{error, of_engine};

/// Answers the statements of cursors.
#[derive(Debug)]
pub(super) struct Cursors;

async fn declare(declare: &Declare, ctx: &SessionContext, client: &mut dyn HookClient) -> PgWireResult<()> {
    let (Some(name), Some(query), Some(DeclareType::Cursor)) =
        (declare.names.first(), &declare.for_query, &declare.declare_type)
    else {
        return Err(error("42601", "DECLARE needs a name, CURSOR, and FOR with a query".to_owned()));
    };
    let statement = Statement::Query(query.clone());
    let plan = guard::plan(ctx, &statement).await?;
    let frame = ctx.execute_logical_plan(plan.clone()).await.map_err(|e| of_engine(&e))?;
    let options = Arc::new(FormatOptions::from_client_metadata(client.metadata()));
    let rows = encode_dataframe(frame, &Format::UnifiedText, Some(options)).await?;
    // With its plan, so that its columns can be described.
    let stored = (query.to_string(), Some((statement, plan)));
    let stored = StoredStatement::new(name.value.clone(), stored, Vec::new());
    let portal = Portal::new_cursor(name.value.clone(), Arc::new(stored));
    portal.start(rows).await;
    client.portal_store().put_portal(Arc::new(portal));
    Ok(())
}

/// How many rows are asked for; 0: all.
fn count(direction: &FetchDirection) -> PgWireResult<usize> {
    match direction {
        FetchDirection::Next | FetchDirection::Forward { limit: None } => Ok(1),
        FetchDirection::Forward { limit: Some(n) } | FetchDirection::Count { limit: n } => match &n.value {
            Value::Number(n, _) => n.parse().ok(),
            _ => None,
        }
        .ok_or_else(|| error("22023", format!("`{n}` is no number of rows"))),
        FetchDirection::ForwardAll | FetchDirection::All => Ok(0),
        _ => Err(error("55000", "cursor can only scan forward".to_owned())),
    }
}

async fn fetch(
    name: &Ident,
    direction: &FetchDirection,
    client: &mut dyn HookClient,
) -> PgWireResult<Response> {
    let missing = || error("34000", format!("cursor \"{}\" does not exist", name.value));
    let portal =
        client.portal_store().get_portal(&name.value).and_then(|e| e.value().cloned()).ok_or_else(missing)?;
    let fetched = portal.fetch(count(direction)?).await?.response;
    if !fetched.row_schema().is_empty() {
        return Ok(Response::Query(fetched));
    }
    let (_, Some((_, plan))) = &portal.statement.statement else { return Ok(Response::Query(fetched)) };
    let columns = arrow_schema_to_pg_fields(plan.schema().as_arrow(), &Format::UnifiedText, None)?;
    Ok(Response::Query(QueryResponse::new(Arc::new(columns), futures::stream::empty())))
}

#[async_trait]
impl QueryHook for Cursors {
    async fn handle_simple_query(
        &self,
        statement: &Statement,
        ctx: &SessionContext,
        client: &mut dyn HookClient,
    ) -> Option<PgWireResult<Response>> {
        match statement {
            Statement::Declare { stmts } => {
                for d in stmts {
                    if let Err(e) = declare(d, ctx, client).await {
                        return Some(Err(e));
                    }
                }
                Some(Ok(Response::Execution(Tag::new("DECLARE CURSOR"))))
            }
            Statement::Fetch { name, direction, .. } => Some(fetch(name, direction, client).await),
            Statement::Close { cursor } => {
                match cursor {
                    CloseCursor::All => client.portal_store().clear_portals(),
                    CloseCursor::Specific { name } => client.portal_store().rm_portal(&name.value),
                }
                Some(Ok(Response::Execution(Tag::new("CLOSE CURSOR"))))
            }
            _ => None,
        }
    }

    async fn handle_extended_parse_query(
        &self,
        statement: &Statement,
        _ctx: &SessionContext,
        _client: &(dyn ClientInfo + Send + Sync),
    ) -> Option<PgWireResult<LogicalPlan>> {
        match statement {
            Statement::Declare { .. } | Statement::Close { .. } => Some(Ok(guard::nothing())),
            // Its columns would have to be told before the cursor is known.
            Statement::Fetch { .. } => {
                Some(Err(error("0A000", "FETCH can only be sent as a simple query, not prepared".to_owned())))
            }
            _ => None,
        }
    }

    async fn handle_extended_query(
        &self,
        statement: &Statement,
        _plan: &LogicalPlan,
        _params: &ParamValues,
        ctx: &SessionContext,
        client: &mut dyn HookClient,
    ) -> Option<PgWireResult<Response>> {
        self.handle_simple_query(statement, ctx, client).await
    }
}
