//! What is logged and measured is written down: the tables of `src/metrics.rs`, the pages made from
//! them, and the source say the same.

use std::collections::BTreeSet;
use std::path::Path;

use oncepress::metrics::{EVENTS, SHAPES, events_markdown, points_markdown};
use regex::Regex;

#[test]
fn the_page_of_metrics_has_the_table_of_the_code() {
    generated("docs/METRICS.md", "points", &points_markdown());
}

#[test]
fn the_page_of_logs_has_the_table_of_the_code() {
    generated("docs/LOGGING.md", "events", &events_markdown());
}

fn generated(path: &str, what: &str, table: &str) {
    let page = crate::text(path);
    let begin = format!("<!-- {what}: generated from src/metrics.rs -->\n");
    let end = format!("<!-- end of {what} -->");
    let (before, rest) = page.split_once(&begin).unwrap();
    let (written, after) = rest.split_once(&end).unwrap();
    let expected = format!("\n{table}\n");
    if std::env::var_os("REWRITE_DOCS").is_some() {
        let page = format!("{before}{begin}{expected}{end}{after}");
        return std::fs::write(crate::root().join(path), page).unwrap();
    }
    assert!(
        written == expected,
        "run REWRITE_DOCS=1 cargo test --test contract"
    );
}

#[test]
fn every_log_event_of_the_source_is_in_the_table_and_no_other() {
    let call = Regex::new(r#"\.log\(\s*"([a-z_]+)""#).unwrap();
    let mut found = BTreeSet::new();
    sources(&crate::root().join("src"), &mut |text| {
        found.extend(call.captures_iter(text).map(|call| call[1].to_owned()));
    });
    let named: BTreeSet<String> = EVENTS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let unnamed: Vec<_> = found.difference(&named).collect();
    let unused: Vec<_> = named.difference(&found).collect();
    assert!(unnamed.is_empty(), "not in metrics::EVENTS: {unnamed:?}");
    assert!(unused.is_empty(), "in metrics::EVENTS only: {unused:?}");
    assert!(EVENTS.is_sorted(), "the table is in order of names");
}

fn sources(folder: &Path, take: &mut dyn FnMut(&str)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, take);
        } else if path.extension().is_some_and(|end| end == "rs") {
            take(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_query_reads_columns_that_its_event_has() {
    let page = crate::text("docs/METRICS.md");
    let queries: Vec<&str> = page
        .split("```sql\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(queries.len() >= 5);
    let columns = Regex::new(r"(blob|double)(\d+)").unwrap();
    for query in queries {
        let shapes: Vec<_> = SHAPES
            .iter()
            .filter(|shape| query.contains(&format!("'{}'", shape.event)))
            .collect();
        assert!(!shapes.is_empty(), "{query}");
        for column in columns.captures_iter(query) {
            let number: usize = column[2].parse().unwrap();
            let has = |shape: &&&oncepress::metrics::Shape| match &column[1] {
                "blob" => number <= shape.blobs.len() + 1,
                _ => number <= shape.doubles.len(),
            };
            assert!(
                shapes.iter().any(|shape| has(&shape)),
                "{} in {query}",
                &column[0]
            );
        }
    }
}
