//! Settings of single pipelines, from the table `PIPELINES`.

use serde_json::Value;

use super::faults::{Faults, Members, member};
use super::gate::OutputGate;
use super::{Publishers, values};
use crate::publish::target::check_pattern;
use crate::publish::template::Template;

/// Settings of one pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// Whose pipeline it is.
    pub accounts: Vec<String>,
    /// The model of requests that name none.
    pub model: Option<String>,
    /// Where outputs go when the request does not say.
    pub publish: Vec<Destination>,
    /// What is sent, unless the publisher has a template of its own.
    pub template: Option<Template>,
    /// Rules for what may be published by itself.
    pub gate: Option<OutputGate>,
    /// What happens to a second generation for one target within a day.
    pub near_duplicates: NearDuplicates,
}

/// One destination: a publisher by name, and where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The publisher's name.
    pub publisher: String,
    /// Where in it; its placeholders are filled in at the claim.
    pub target: String,
}

/// What happens to a second generation for one publisher and target within a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NearDuplicates {
    /// It is published like any other.
    #[default]
    Allow,
    /// It is held for a person.
    Hold,
}

/// Reads one entry of the table; its key is `SITE/PIPELINE`.
pub(super) fn parse(
    key: &str,
    value: &Value,
    publishers: &Publishers,
    faults: &mut Faults,
) -> Option<Pipeline> {
    let path = member("PIPELINES", key);
    let named = key
        .split_once('/')
        .map(|(site, pipeline)| values::name(site).is_ok() && values::name(pipeline).is_ok());
    if named != Some(true) {
        faults.add(
            path.as_str(),
            "must be named SITE/PIPELINE, each 1 to 64 of `a-z 0-9 . _ -`",
        );
    }
    let known = [
        "accounts",
        "model",
        "publish",
        "template",
        "gate",
        "near_duplicates",
    ];
    let members = Members::of(&path, value, &known, faults)?;
    let model = members.text("model", faults);
    let near_duplicates = members.text("near_duplicates", faults);
    let accounts = accounts(&members, faults);
    let publish = destinations(&members, |it| may(it, &accounts, publishers), faults);
    Some(Pipeline {
        accounts,
        model: model.and_then(|text| faults.keep(&members.path("model"), values::model(text))),
        publish,
        template: members
            .value("template")
            .and_then(|value| faults.keep(&members.path("template"), Template::parse(value))),
        gate: members
            .value("gate")
            .map(|gate| OutputGate::parse(&members.path("gate"), gate, faults)),
        near_duplicates: near_duplicates
            .and_then(|text| {
                let choices = [
                    ("allow", NearDuplicates::Allow),
                    ("hold", NearDuplicates::Hold),
                ];
                faults.keep(
                    &members.path("near_duplicates"),
                    values::choice(text, &choices),
                )
            })
            .unwrap_or_default(),
    })
}

/// Whose a pipeline is: only the account `default`, unless it says otherwise.
fn accounts(members: &Members<'_>, faults: &mut Faults) -> Vec<String> {
    let Some(accounts) = members.texts("accounts", faults) else {
        return vec!["default".to_owned()];
    };
    if accounts.is_empty() {
        faults.add(members.path("accounts"), "must name an account");
    }
    for (at, account) in accounts.iter().enumerate() {
        faults.keep(
            &format!("{}[{at}]", members.path("accounts")),
            values::name(account),
        );
    }
    accounts
}

fn destinations(
    members: &Members<'_>,
    may: impl Fn(&Destination) -> Result<(), String>,
    faults: &mut Faults,
) -> Vec<Destination> {
    let path = members.path("publish");
    let Some(value) = members.value("publish") else {
        return Vec::new();
    };
    let Value::Array(items) = value else {
        faults.add(path, "must be a list of { publisher, target }");
        return Vec::new();
    };
    if items.len() > crate::limits::DESTINATIONS_MAX {
        let max = crate::limits::DESTINATIONS_MAX;
        faults.add(
            path.as_str(),
            format!("must name at most {max} destinations"),
        );
    }
    let mut destinations: Vec<Destination> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let Some(destination) = destination(&path, item, faults) else {
            continue;
        };
        if destinations.contains(&destination) {
            faults.add(path.as_str(), "repeats an earlier destination");
        }
        faults.keep(&member(&path, "publisher"), may(&destination));
        destinations.push(destination);
    }
    destinations
}

fn destination(path: &str, item: &Value, faults: &mut Faults) -> Option<Destination> {
    let members = Members::of(path, item, &["publisher", "target"], faults)?;
    for name in ["publisher", "target"] {
        if members.value(name).is_none() {
            faults.add(members.path(name), "is missing");
        }
    }
    let publisher = members.text("publisher", faults);
    let target = members.text("target", faults);
    Some(Destination {
        publisher: faults.keep(&members.path("publisher"), values::name(publisher?))?,
        target: faults.keep(&members.path("target"), self::target(target?))?,
    })
}

/// A destination's publisher must exist and be open to each of the pipeline's accounts. One that
/// is faulty has been named already.
fn may(it: &Destination, accounts: &[String], publishers: &Publishers) -> Result<(), String> {
    match publishers.get(&it.publisher) {
        None => Err("names a publisher that PUBLISHERS does not have".to_owned()),
        Some(Some(settings)) if !accounts.iter().all(|account| settings.is_open_to(account)) => {
            Err("names a publisher that is not open to each of the accounts".to_owned())
        }
        Some(_) => Ok(()),
    }
}

/// A target as it is written: its placeholders are known and the path around them is sound.
pub(crate) fn target(text: &str) -> Result<String, String> {
    let checked = check_pattern(text).map(|()| text.to_owned());
    checked.map_err(|fault| fault.trim_start_matches("the target ").to_owned())
}
