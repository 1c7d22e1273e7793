//! The contract: `openapi.json`, the transcripts, `wrangler.toml` and the documents say what the
//! code says.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests may"
)]

mod documents;
mod observability;
mod openapi;
mod schema;
mod transcripts;
mod wrangler;

use std::path::PathBuf;

/// The text of a file of the repository.
fn text(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
