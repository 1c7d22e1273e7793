//! The environment guard: KV, the database and R2 carry the name of the environment that they
//! belong to. A Worker of another environment refuses to run, so that a local test can never mark
//! production's keys.

use std::cell::RefCell;
use std::rc::Rc;

use crate::app::App;
use crate::ports::Object;
use crate::store::row::first;
use crate::store::{statement, text};
use crate::time::Span;

/// What the guard found, once an isolate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every store is this environment's.
    Own,
    /// A store is another environment's: which, and whose.
    Foreign(String),
    /// A store could not be asked.
    Unreachable(String),
}

/// Subrequests of a check by an isolate that remembers nothing: three stores, each read and written.
pub const COST_MAX: u32 = 6;

/// Remembers that every store is this environment's.
pub type Memory = Rc<RefCell<bool>>;

/// Checks the stores, and gives those that have no name yet this environment's. An instance that
/// took over from one that died finds in its isolate's memory what that one found.
pub async fn check(app: &App, memory: &Memory) -> Verdict {
    if *memory.borrow() {
        return Verdict::Own;
    }
    let environment = &app.config().environment;
    if app.isolate.get(MEMORY, app.now()).as_ref() == Some(environment) {
        *memory.borrow_mut() = true;
        return Verdict::Own;
    }
    // The database first: a Worker whose database is another's must not name the other stores.
    let mut complete = true;
    for binding in ["DB", "KV_DEDUP", "BUCKET"] {
        let name = match binding {
            "DB" => database(app, environment).await,
            "KV_DEDUP" => key_value(app, environment).await,
            _ => bucket(app, environment).await,
        };
        match name {
            Ok(name) if &name == environment => {}
            Ok(name) => {
                return Verdict::Foreign(format!(
                    "{binding} belongs to the environment {name:?}, not to {environment:?}"
                ));
            }
            // A namespace that can't be read is no reason to stop: what it says is only a hint.
            Err(_) if binding == "KV_DEDUP" => complete = false,
            Err(error) => return Verdict::Unreachable(format!("{binding}: {error}")),
        }
    }
    if complete {
        *memory.borrow_mut() = true;
        app.isolate
            .put(MEMORY, environment, app.now().plus(MEMORY_TTL));
    }
    Verdict::Own
}

async fn database(app: &App, environment: &str) -> Result<String, String> {
    let batch = vec![
        statement(
            "INSERT INTO meta (name, value) VALUES ('environment', ?1) ON CONFLICT DO NOTHING",
            vec![text(environment)],
        ),
        statement(
            "SELECT value FROM meta WHERE name = 'environment'",
            Vec::new(),
        ),
    ];
    let results = app.run(batch).await.map_err(|error| error.to_string())?;
    let row = first(&results, 1).map_err(|error| error.to_string())?;
    row.and_then(|row| row.text("value").ok())
        .ok_or_else(|| "no name".to_owned())
}

async fn key_value(app: &App, environment: &str) -> Result<String, String> {
    if let Some(name) = app.kv_get(NAME).await.map_err(|error| error.to_string())? {
        Ok(name)
    } else {
        let put = app.kv_put(NAME, environment.to_owned(), None).await;
        put.map(|()| environment.to_owned())
            .map_err(|error| error.to_string())
    }
}

async fn bucket(app: &App, environment: &str) -> Result<String, String> {
    let Some(objects) = &app.objects else {
        return Ok(environment.to_owned());
    };
    let object = Object {
        bytes: environment.as_bytes().to_vec(),
        content_type: "text/plain; charset=utf-8".to_owned(),
        metadata: Vec::new(),
    };
    if let Some(found) = objects.get(NAME).await.map_err(|error| error.to_string())? {
        return Ok(String::from_utf8_lossy(&found.bytes).into_owned());
    }
    objects
        .put_new(NAME, object)
        .await
        .map_err(|error| error.to_string())?;
    let found = objects.get(NAME).await.map_err(|error| error.to_string())?;
    found
        .map(|found| String::from_utf8_lossy(&found.bytes).into_owned())
        .ok_or_else(|| "no name".to_owned())
}

/// The key, in KV and in R2, of the environment's name.
const NAME: &str = "_oncepress/environment";
/// The isolate's own name for what the guard found…
const MEMORY: &str = "guard:environment";
/// …which it keeps as long as an isolate may well live; then the stores are asked once more.
const MEMORY_TTL: Span = Span::from_days(1);
