//! How a job and its end travel between the handler and the runner: one line of JSON, then text.

use serde::{Deserialize, Serialize};

use crate::idempotency::record::{Job, Settlement};
use crate::time::Span;

#[derive(Serialize, Deserialize)]
struct Start<J> {
    job: J,
    wait_ms: i64,
}

#[derive(Serialize, Deserialize)]
struct End {
    settlement: Option<Settlement>,
}

/// Writes a start: the job, how long its caller waits, the request's body.
pub fn write_start(job: &Job, wait: Span, body: &str) -> String {
    let head = Start {
        job,
        wait_ms: wait.millis(),
    };
    format!(
        "{}\n{body}",
        serde_json::to_string(&head).unwrap_or_default()
    )
}

/// Reads a start.
pub fn read_start(text: &str) -> Option<(Job, Span, String)> {
    let (head, body) = text.split_once('\n')?;
    let start: Start<Job> = serde_json::from_str(head).ok()?;
    Some((start.job, Span::from_millis(start.wait_ms), body.to_owned()))
}

/// Writes how a run ended, or that it goes on.
pub fn write_end(settlement: Option<&Settlement>) -> String {
    let body = match settlement {
        Some(Settlement::Generated { stored } | Settlement::Held { stored, .. }) => &stored.body,
        _ => "",
    };
    let head = End {
        settlement: settlement.cloned(),
    };
    format!(
        "{}\n{body}",
        serde_json::to_string(&head).unwrap_or_default()
    )
}

/// Reads how a run ended.
pub fn read_end(text: &str) -> Option<Option<Settlement>> {
    let (head, body) = text.split_once('\n')?;
    let end: End = serde_json::from_str(head).ok()?;
    Some(end.settlement.map(|mut settlement| {
        if let Settlement::Generated { stored } | Settlement::Held { stored, .. } = &mut settlement
        {
            body.clone_into(&mut stored.body);
        }
        settlement
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_without_an_output_come_back_as_they_were() {
        let failed = Settlement::Failed {
            code: "gemini_rate_limited".to_owned(),
            detail: "two\nlines".to_owned(),
            retry_after_ms: Some(5),
            google: Some((429, "{\"error\": {}}".to_owned())),
        };
        assert_eq!(read_end(&write_end(Some(&failed))), Some(Some(failed)));
        assert_eq!(read_end(&write_end(None)), Some(None));
        assert_eq!(read_end("nonsense"), None);
    }
}
