//! Looking generations up.

use crate::idempotency::record::Generation;
use crate::ports::{DbError, Rows, Statement};
use crate::store::row::first;
use crate::store::{count, integer, optional, statement, text};
use crate::time::Timestamp;

/// Which generations to list.
#[derive(Clone, Debug)]
pub struct GenerationQuery<'a> {
    /// Whose; `None` for all (administrators).
    pub account: Option<&'a str>,
    /// In this state only, as callers see it.
    pub state: Option<&'a str>,
    /// Of this site only.
    pub site: Option<&'a str>,
    /// Of this pipeline only.
    pub pipeline: Option<&'a str>,
    /// Under this key only.
    pub key: Option<&'a str>,
    /// Of this first request only.
    pub request_id: Option<&'a str>,
    /// Older than this (time, id).
    pub before: (Timestamp, &'a str),
    /// At most so many.
    pub limit: usize,
}

/// One generation with its deliveries and its tombstone, of an account or (administrators) of any.
pub fn find(id: &str, account: Option<&str>) -> Vec<Statement> {
    vec![
        statement(FIND, vec![text(id), optional(account)]),
        super::deliveries::of_generation(id),
        statement(
            "SELECT id FROM tombstones WHERE id = ?1 AND (?2 IS NULL OR account = ?2)",
            vec![text(id), optional(account)],
        ),
    ]
}

/// Reads the first result of [`find`].
pub fn read_found(results: &[Rows]) -> Result<Option<Generation>, DbError> {
    first(results, 0)?.map(Generation::read).transpose()
}

/// A page of generations, newest first. Each filter that has an index uses it; the others are
/// checked on the rows that the page reads.
pub fn list(query: &GenerationQuery<'_>) -> Statement {
    let sql = match query {
        GenerationQuery { account: None, .. } => LIST_ALL,
        GenerationQuery {
            request_id: Some(_),
            ..
        } => LIST_BY_REQUEST,
        GenerationQuery { key: Some(_), .. } => LIST_BY_KEY,
        GenerationQuery {
            site: Some(_),
            pipeline: Some(_),
            ..
        } => LIST_BY_SCOPE,
        GenerationQuery { .. } => LIST_BY_ACCOUNT,
    };
    statement(
        sql,
        vec![
            optional(query.account),
            optional(query.state),
            optional(query.site),
            optional(query.pipeline),
            optional(query.key),
            optional(query.request_id),
            integer(query.before.0.millis()),
            text(query.before.1),
            count(query.limit),
        ],
    )
}

/// The parts of a stored output, in order.
pub fn output(output_id: &str) -> Statement {
    statement(
        "SELECT body FROM outputs WHERE output_id = ?1 ORDER BY part",
        vec![text(output_id)],
    )
}

/// The columns of a list and its common filters.
macro_rules! list_sql {
    ($from:literal, $where:literal) => {
        concat!(
            "SELECT g.*, '[]' AS destinations FROM generations g ",
            $from,
            " WHERE ",
            $where,
            " AND (?2 IS NULL OR CASE g.state WHEN 'queued' THEN 'running' ELSE g.state END = ?2) \
               AND (?3 IS NULL OR g.site = ?3) AND (?4 IS NULL OR g.pipeline = ?4) \
               AND (?5 IS NULL OR g.key = ?5) AND (?6 IS NULL OR g.request_id = ?6) \
               AND (g.created_at, g.id) < (?7, ?8) \
             ORDER BY g.created_at DESC, g.id DESC LIMIT ?9"
        )
    };
}

const FIND: &str = "SELECT g.*, \
  (SELECT json_group_array(d.publisher || '=' || d.target) FROM deliveries d \
    WHERE d.generation_id = g.id) AS destinations \
FROM generations g WHERE g.id = ?1 AND (?2 IS NULL OR g.account = ?2)";

const LIST_ALL: &str = list_sql!("INDEXED BY generations_by_time", "?1 IS NULL");
const LIST_BY_ACCOUNT: &str = list_sql!("INDEXED BY generations_by_account", "g.account = ?1");
const LIST_BY_SCOPE: &str = list_sql!(
    "INDEXED BY generations_by_scope",
    "g.account = ?1 AND g.site = ?3 AND g.pipeline = ?4"
);
const LIST_BY_KEY: &str = list_sql!(
    "INDEXED BY generations_by_key",
    "g.account = ?1 AND g.key = ?5"
);
const LIST_BY_REQUEST: &str = list_sql!(
    "INDEXED BY generations_by_request",
    "g.account = ?1 AND g.request_id = ?6"
);
