//! The usage report: sums over days, by what is asked for.

use crate::ports::{SqlValue, Statement};
use crate::store::{count, integer, statement, text};

/// By what the report is grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    missing_docs,
    reason = "each is a word of `group_by`"
)]
pub struct Grouping {
    pub site: bool,
    pub pipeline: bool,
    pub model: bool,
    pub day: bool,
}

/// At most `limit` groups of the days in `range` (both included), in order, and their total.
pub fn report(
    account: Option<&str>,
    range: (&str, &str),
    grouping: Grouping,
    limit: usize,
) -> Vec<Statement> {
    let days = vec![text(range.0), text(range.1)];
    let mut groups = days.clone();
    groups.extend(
        [
            grouping.site,
            grouping.pipeline,
            grouping.model,
            grouping.day,
        ]
        .map(integer),
    );
    groups.push(integer(
        grouping.site || grouping.pipeline || grouping.model || grouping.day,
    ));
    groups.push(count(limit));
    let with = |mut params: Vec<SqlValue>, account: &str| {
        params.push(text(account));
        params
    };
    match account {
        None => vec![statement(GROUPS, groups), statement(TOTAL, days)],
        Some(account) => vec![
            statement(GROUPS_OF_ACCOUNT, with(groups, account)),
            statement(TOTAL_OF_ACCOUNT, with(days, account)),
        ],
    }
}

macro_rules! sums {
    () => {
        "COALESCE(SUM(generations), 0) AS generations, COALESCE(SUM(published), 0) AS published, \
         COALESCE(SUM(replays), 0) AS replays, \
         COALESCE(SUM(prompt_tokens), 0) AS prompt_tokens, \
         COALESCE(SUM(cached_tokens), 0) AS cached_tokens, \
         COALESCE(SUM(output_tokens), 0) AS output_tokens, \
         COALESCE(SUM(thought_tokens), 0) AS thought_tokens, \
         COALESCE(SUM(cost_nano), 0) AS cost_nano, COALESCE(SUM(saved_nano), 0) AS saved_nano "
    };
}

macro_rules! groups {
    ($rows:literal) => {
        concat!(
            "SELECT CASE WHEN ?3 THEN u.site END AS site, \
               CASE WHEN ?4 THEN u.pipeline END AS pipeline, \
               CASE WHEN ?5 THEN u.model END AS model, CASE WHEN ?6 THEN u.day END AS day, ",
            sums!(),
            "FROM usage_days u ",
            $rows,
            " AND ?7 GROUP BY 1, 2, 3, 4 ORDER BY 4, 1, 2, 3 LIMIT ?8"
        )
    };
}

const GROUPS: &str = groups!("INDEXED BY usage_days_by_day WHERE u.day BETWEEN ?1 AND ?2");
const GROUPS_OF_ACCOUNT: &str = groups!("WHERE u.account = ?9 AND u.day BETWEEN ?1 AND ?2");

const TOTAL: &str = concat!(
    "SELECT ",
    sums!(),
    "FROM usage_days INDEXED BY usage_days_by_day WHERE day BETWEEN ?1 AND ?2"
);
const TOTAL_OF_ACCOUNT: &str = concat!(
    "SELECT ",
    sums!(),
    "FROM usage_days WHERE account = ?3 AND day BETWEEN ?1 AND ?2"
);
