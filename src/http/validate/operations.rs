//! The bodies of the calls for operators: accounts, API keys, `resolve`.

use super::bounds::{DAILY_CREDITS, KEY_LABEL_MAX_CHARS, REASON_MAX_CHARS};
use super::generation::KeyDefaults;
use super::reader::{Faults, Object};
use crate::config::parse_name;
use crate::error::Fault;
use crate::key::json::Json;
use crate::ports::Zones;
use crate::time::Timestamp;

/// The body of `POST /admin/accounts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRequest {
    /// The account's name.
    pub account: String,
    /// Its daily limit in credits; `None` is unlimited.
    pub daily_credits: Option<i64>,
    /// The IANA time zone in which its day begins; `None` is UTC.
    pub timezone: Option<String>,
}

/// The body of `PATCH /admin/accounts/{a}`: what it names changes, the rest stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountChange {
    /// The new daily limit.
    pub daily_credits: Option<DailyCredits>,
    /// The new time zone.
    pub timezone: Option<String>,
}

/// A daily limit that is set anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DailyCredits {
    /// `null`: no limit.
    Unlimited,
    /// So many micro-US-dollars a day.
    Limit(i64),
}

/// The body of `POST /admin/accounts/{a}/keys`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRequest {
    /// A name for people.
    pub label: Option<String>,
    /// What the key fills in where a request is silent.
    pub defaults: KeyDefaults,
}

/// The body of `POST /api/v1/generations/{id}/resolve`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolveRequest {
    /// What is to be done.
    pub action: ResolveAction,
    /// Why, for the audit.
    pub reason: String,
}

/// What a person decides about a held or unknown generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveAction {
    /// Run it again now.
    Regenerate,
    /// Give it up.
    Abandon,
    /// Publish the held output.
    Publish,
}

impl AccountRequest {
    /// Reads a body; all faults are named together.
    pub fn parse(body: &Json, zones: &dyn Zones) -> Result<Self, Vec<Fault>> {
        let mut faults = Faults::default();
        let known = ["account", "dailyCredits", "timezone"];
        let request = Object::of("", body, &known, &mut faults).map(|object| {
            object.require("account", &mut faults);
            Self {
                account: object
                    .parsed("account", parse_name, &mut faults)
                    .unwrap_or_default(),
                daily_credits: object.integer("dailyCredits", DAILY_CREDITS, &mut faults),
                timezone: object.parsed("timezone", |text| zone(text, zones), &mut faults),
            }
        });
        faults.settle(request)
    }
}

impl AccountChange {
    /// Reads a body; all faults are named together.
    pub fn parse(body: &Json, zones: &dyn Zones) -> Result<Self, Vec<Fault>> {
        let mut faults = Faults::default();
        let known = ["dailyCredits", "timezone"];
        let change = Object::of("", body, &known, &mut faults).map(|object| {
            let daily_credits = match object.get("dailyCredits") {
                Some(Json::Null) => Some(DailyCredits::Unlimited),
                _ => object
                    .integer("dailyCredits", DAILY_CREDITS, &mut faults)
                    .map(DailyCredits::Limit),
            };
            let timezone = object.parsed("timezone", |text| zone(text, zones), &mut faults);
            Self {
                daily_credits,
                timezone,
            }
        });
        faults.settle(change)
    }
}

impl KeyRequest {
    /// Reads a body; all faults are named together.
    pub fn parse(body: &Json) -> Result<Self, Vec<Fault>> {
        let mut faults = Faults::default();
        let request =
            Object::of("", body, &["label", "defaults"], &mut faults).map(|object| Self {
                label: object.line("label", 1..=KEY_LABEL_MAX_CHARS, &mut faults),
                defaults: object
                    .get("defaults")
                    .and_then(|json| KeyDefaults::read(&object.at("defaults"), json, &mut faults))
                    .unwrap_or_default(),
            });
        faults.settle(request)
    }
}

impl ResolveRequest {
    /// Reads a body; all faults are named together.
    pub fn parse(body: &Json) -> Result<Self, Vec<Fault>> {
        let mut faults = Faults::default();
        let request = Object::of("", body, &["action", "reason"], &mut faults).and_then(|object| {
            object.require("action", &mut faults);
            object.require("reason", &mut faults);
            let action = object.parsed("action", action, &mut faults);
            let reason = object.line("reason", 1..=REASON_MAX_CHARS, &mut faults);
            Some(Self {
                action: action?,
                reason: reason?,
            })
        });
        faults.settle(request)
    }
}

fn action(text: &str) -> Result<ResolveAction, String> {
    match text {
        "regenerate" => Ok(ResolveAction::Regenerate),
        "abandon" => Ok(ResolveAction::Abandon),
        "publish" => Ok(ResolveAction::Publish),
        _ => Err("must be regenerate, abandon or publish".to_owned()),
    }
}

fn zone(text: &str, zones: &dyn Zones) -> Result<String, String> {
    let known = zones.offset_minutes(text, Timestamp::default());
    known
        .map(|_| text.to_owned())
        .ok_or_else(|| "must be an IANA time zone".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Utc;

    impl Zones for Utc {
        fn offset_minutes(&self, zone: &str, _: Timestamp) -> Option<i32> {
            (zone == "UTC").then_some(0)
        }
    }

    fn json(text: &str) -> Json {
        Json::parse(text.as_bytes()).unwrap()
    }

    fn shown<T: std::fmt::Debug>(parsed: Result<T, Vec<Fault>>) -> String {
        let faults = parsed.unwrap_err();
        let lines = faults
            .iter()
            .map(|fault| format!("{} {}", fault.pointer, fault.detail));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn an_account_has_a_name_and_may_have_a_limit() {
        let request = AccountRequest::parse(&json(r#"{"account":"acme","dailyCredits":0}"#), &Utc);
        let request = request.unwrap();
        assert_eq!((request.daily_credits, request.timezone), (Some(0), None));
        let faulty = json(r#"{"dailyCredits":-1,"timezone":"Mars","x":1}"#);
        insta::assert_snapshot!(shown(AccountRequest::parse(&faulty, &Utc)), @r#"
        /x is not a known member
        /account is required
        /dailyCredits must be a whole number from 0 to 1000000000000
        /timezone must be an IANA time zone
        "#);
    }

    #[test]
    fn a_change_tells_no_limit_from_no_change() {
        let change = |text| {
            AccountChange::parse(&json(text), &Utc)
                .unwrap()
                .daily_credits
        };
        assert_eq!(change("{}"), None);
        assert_eq!(
            change(r#"{"dailyCredits":null}"#),
            Some(DailyCredits::Unlimited)
        );
        assert_eq!(
            change(r#"{"dailyCredits":5}"#),
            Some(DailyCredits::Limit(5))
        );
    }

    #[test]
    fn the_defaults_of_a_key_are_checked_where_they_stand() {
        let request = KeyRequest::parse(&json(r#"{"label":"cron","defaults":{"site":"demo"}}"#));
        assert_eq!(request.unwrap().defaults.site.as_deref(), Some("demo"));
        let faulty = json(r#"{"defaults":{"site":"Demo","publish":[{"publisher":"a"}]}}"#);
        insta::assert_snapshot!(shown(KeyRequest::parse(&faulty)), @r#"
        /defaults/site must be 1 to 64 of `a-z 0-9 . _ -`, starting with a letter or digit
        /defaults/publish/0/target is required
        "#);
    }

    #[test]
    fn a_resolution_needs_an_action_and_a_reason() {
        let request = ResolveRequest::parse(&json(r#"{"action":"publish","reason":"reads well"}"#));
        assert_eq!(request.unwrap().action, ResolveAction::Publish);
        let faulty = json(r#"{"action":"delete","reason":""}"#);
        insta::assert_snapshot!(shown(ResolveRequest::parse(&faulty)), @r#"
        /action must be regenerate, abandon or publish
        /reason must have 1 to 1000 characters
        "#);
        assert!(ResolveRequest::parse(&json("{}")).is_err());
    }
}
