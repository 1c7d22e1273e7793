//! The settings of one publisher: a table of the configuration, read once into types.

use serde_json::Value;

use super::fields::Fields;
use super::ghost::GhostSettings;
use super::github::GithubSettings;
use super::queue::QueueSettings;
use super::r2::R2Settings;
use super::ssrf::Loopback;
use super::template::Template;
use super::webhook::WebhookSettings;
use super::wordpress::WordpressSettings;
use super::{
    Failure, IdempotencyClass, Outcome, Parcel, Publication, Reply, Step, failure, target,
};
use crate::time::Timestamp;

/// What is done with a delivery of unknown fate where the destination can't be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ambiguous {
    /// It is sent again, with the same key.
    AtLeastOnce,
    /// It waits for a person.
    AtMostOnce,
}

/// One publisher of the configuration.
#[derive(Clone, Debug)]
pub struct PublisherSettings {
    name: String,
    accounts: Vec<String>,
    ambiguous: Ambiguous,
    template: Option<Template>,
    kind: Kind,
}

/// The kinds of publishers, each with its own settings.
#[derive(Clone, Debug)]
enum Kind {
    R2(R2Settings),
    Webhook(WebhookSettings),
    Github(GithubSettings),
    Wordpress(WordpressSettings),
    Ghost(GhostSettings),
    Queue(QueueSettings),
}

impl PublisherSettings {
    /// Reads the table of the publisher `name`; secrets are looked up by the names it gives.
    ///
    /// All faults are told at once, each as `member: problem`; a member that is not known is one.
    ///
    /// ```
    /// use oncepress::publish::settings::PublisherSettings;
    /// let table = serde_json::json!({ "kind": "r2", "prefxi": "posts/", "accounts": "me" });
    /// let faults = PublisherSettings::parse("archive", &table, &|_| None, "production");
    /// let faults = faults.unwrap_err();
    /// assert!(faults[0].starts_with("accounts: must be a list"), "{faults:?}");
    /// assert!(faults[1].starts_with("prefxi: is not known here"), "{faults:?}");
    /// ```
    pub fn parse(
        name: &str,
        table: &Value,
        secret: &dyn Fn(&str) -> Option<String>,
        environment: &str,
    ) -> Result<Self, Vec<String>> {
        let development = environment == "development";
        let loopback = if development {
            Loopback::Allowed
        } else {
            Loopback::Refused
        };
        let mut fields = Fields::new(table, secret, loopback);
        let accounts = read_accounts(&mut fields);
        let ambiguous = read_ambiguous(&mut fields);
        let template = read_template(&mut fields);
        let kind = Kind::read(&mut fields);
        let faults = fields.finish();
        match kind {
            Some(kind) if faults.is_empty() => Ok(Self {
                name: name.to_owned(),
                accounts,
                ambiguous,
                template,
                kind,
            }),
            Some(_) | None => Err(faults),
        }
    }

    /// The name that callers pick.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether `account` may publish here.
    pub fn is_open_to(&self, account: &str) -> bool {
        self.accounts.iter().any(|open| open == account)
    }

    /// What to do where nobody can tell whether the destination has it.
    pub fn ambiguous(&self) -> Ambiguous {
        self.ambiguous
    }

    /// The publisher's own template, if it has one.
    pub fn template(&self) -> Option<&Template> {
        self.template.as_ref()
    }

    /// `r2`, `webhook`, …
    pub fn kind(&self) -> &'static str {
        match &self.kind {
            Kind::R2(_) => "r2",
            Kind::Webhook(_) => "webhook",
            Kind::Github(_) => "github",
            Kind::Wordpress(_) => "wordpress",
            Kind::Ghost(_) => "ghost",
            Kind::Queue(_) => "queue",
        }
    }

    /// What a repeat does at this destination.
    pub fn class(&self) -> IdempotencyClass {
        match &self.kind {
            Kind::R2(_) | Kind::Github(_) => IdempotencyClass::Native,
            Kind::Wordpress(_) | Kind::Ghost(_) => IdempotencyClass::Probe,
            Kind::Webhook(_) | Kind::Queue(_) => IdempotencyClass::None,
        }
    }

    /// What can still go wrong, in one sentence for people.
    pub fn residual_risk(&self) -> &'static str {
        match &self.kind {
            Kind::R2(_) => {
                "None while the object exists: a second put under its name is refused by R2; an \
                 object that a person deletes within the retries of a lost answer is put again."
            }
            Kind::Github(_) => {
                "None while the file exists: a second create is refused by GitHub; a file that a \
                 person deletes is not written again, since its commit is found in the history."
            }
            Kind::Wordpress(_) | Kind::Ghost(_) => {
                "An unseen draft may be left behind if the site finishes a request long after \
                 its time-out; a second post is never published. A post that a person renames, \
                 rewrites or deletes within the retries of a lost answer may be written again."
            }
            Kind::Webhook(_) => {
                "The receiver may get the same message more than once, always with the same \
                 webhook-id and body; it must remember the ids it has seen."
            }
            Kind::Queue(_) => {
                "The consumer may get the same message more than once, always with the same \
                 deliveryId and body; it must remember the ids it has seen."
            }
        }
    }

    /// What must have one writer at a time, where there is such a thing.
    pub fn serial_lane(&self, target: &str) -> Option<String> {
        match &self.kind {
            Kind::Github(settings) => Some(settings.serial_lane()),
            // Two deliveries for one slug would race for it; for two slugs nothing is shared.
            Kind::Wordpress(_) | Kind::Ghost(_) => Some(format!("{}:{target}", self.name)),
            Kind::R2(_) | Kind::Webhook(_) | Kind::Queue(_) => None,
        }
    }

    /// Begins one attempt at publishing `parcel`.
    ///
    /// A target that [`target::check`] refuses ends it before anything is sent.
    pub fn begin(&self, parcel: Parcel) -> Box<dyn Publication> {
        if let Err(why) = target::check(&parcel.target) {
            return Box::new(Refused(why));
        }
        match &self.kind {
            Kind::R2(settings) => Box::new(settings.begin(parcel)),
            Kind::Webhook(settings) => Box::new(settings.begin(&parcel)),
            Kind::Github(settings) => Box::new(settings.begin(parcel)),
            Kind::Wordpress(settings) => Box::new(settings.begin(&parcel)),
            Kind::Ghost(settings) => Box::new(settings.begin(&parcel)),
            Kind::Queue(settings) => Box::new(settings.begin(&parcel)),
        }
    }
}

/// A publication that is over before it began.
struct Refused(&'static str);

impl Publication for Refused {
    fn step(&mut self, _reply: Option<Reply>, _now: Timestamp) -> Step {
        Step::Done(Outcome::Permanent(Failure::new(
            failure::TARGET_REFUSED,
            self.0,
        )))
    }
}

impl Kind {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let kind = fields.required("kind");
        match kind.as_deref().unwrap_or_default() {
            "r2" => R2Settings::read(fields).map(Self::R2),
            "webhook" => WebhookSettings::read(fields).map(Self::Webhook),
            "github" => GithubSettings::read(fields).map(Self::Github),
            "wordpress" => WordpressSettings::read(fields).map(Self::Wordpress),
            "ghost" => GhostSettings::read(fields).map(Self::Ghost),
            "queue" => QueueSettings::read(fields).map(Self::Queue),
            unknown => {
                if !unknown.is_empty() {
                    fields.fault(
                        "kind",
                        "must be r2, webhook, github, wordpress, ghost or queue",
                    );
                }
                fields.ignore_rest();
                None
            }
        }
    }
}

fn read_accounts(fields: &mut Fields<'_>) -> Vec<String> {
    let accounts = fields.texts("accounts");
    if accounts.as_ref().is_some_and(Vec::is_empty) {
        fields.fault("accounts", "names nobody");
    }
    accounts.unwrap_or_else(|| vec!["default".to_owned()])
}

fn read_ambiguous(fields: &mut Fields<'_>) -> Ambiguous {
    match fields.text("ambiguous").as_deref() {
        None | Some("at_least_once") => Ambiguous::AtLeastOnce,
        Some("at_most_once") => Ambiguous::AtMostOnce,
        Some(_) => {
            fields.fault("ambiguous", "must be at_least_once or at_most_once");
            Ambiguous::AtLeastOnce
        }
    }
}

fn read_template(fields: &mut Fields<'_>) -> Option<Template> {
    let value = fields.value("template")?;
    Template::parse(&value)
        .map_err(|problem| fields.fault("template", problem))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn secret(name: &str) -> Option<String> {
        let value = match name {
            "HOOK_OLD" | "HOOK_NEW" => "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "SHORT" => "whsec_c2hvcnQ=",
            "TOKEN" => "ghp_s3cret",
            "GHOST" => "6f1a:00ff",
            _ => return None,
        };
        Some(value.to_owned())
    }

    fn parse(table: &Value) -> Result<PublisherSettings, Vec<String>> {
        PublisherSettings::parse("p", table, &secret, "production")
    }

    #[test]
    fn every_kind_is_read_and_shows_no_secret() {
        for table in [
            json!({ "kind": "r2", "prefix": "posts/{account}/", "accounts": ["a", "b"] }),
            json!({ "kind": "webhook", "url": "https://example.com/h/s3cret",
                "secrets": ["HOOK_OLD", "HOOK_NEW"], "ambiguous": "at_most_once",
                "expect": { "status": 202, "json_pointer": "/ok", "equals": true, "text": "ok" },
                "reference": { "header": "X-Id" } }),
            json!({ "kind": "github", "repository": "o/r.io", "branch": "b/c", "token": "TOKEN",
                "api_base": "https://ghe.example.com/api/v3/" }),
            json!({ "kind": "wordpress", "url": "https://example.com/wp", "user": "u",
                "password": "TOKEN", "template": "markdown" }),
            json!({ "kind": "ghost", "url": "https://example.com", "key": "GHOST" }),
            json!({ "kind": "queue", "binding": "ARTICLES" }),
        ] {
            let settings = parse(&table).unwrap();
            assert_eq!(settings.kind(), table["kind"]);
            assert!(settings.residual_risk().ends_with('.'));
            let shown = format!("{settings:?}");
            for secret in ["s3cret", "MfKQ9r8G", "00ff"] {
                assert!(!shown.contains(secret), "{shown}");
            }
        }
    }

    #[test]
    fn an_absent_choice_has_its_default() {
        let settings = parse(&json!({ "kind": "r2" })).unwrap();
        assert!(settings.is_open_to("default"));
        assert!(!settings.is_open_to("other"));
        assert_eq!(settings.ambiguous(), Ambiguous::AtLeastOnce);
        assert!(settings.template().is_none());
    }

    #[test]
    fn all_faults_are_told_at_once_with_their_paths() {
        let table = json!({
            "kind": "webhook", "url": "https://169.254.169.254/", "secrets": ["NONE", "SHORT"],
            "expect": { "status": 302, "equals": 1, "txt": "x" }, "reference": {},
            "accounts": [], "ambiguous": "maybe", "template": "html", "prefix": "x",
        });
        let told: Vec<String> = parse(&table).unwrap_err();
        let paths: Vec<&str> = told.iter().filter_map(|t| t.split(':').next()).collect();
        assert_eq!(
            paths,
            [
                "accounts",
                "ambiguous",
                "template",
                "url",
                "secrets",
                "secrets",
                "expect.status",
                "expect.equals",
                "expect.txt",
                "reference.header",
                "prefix"
            ],
            "{told:#?}"
        );
    }

    #[test]
    fn what_is_missing_or_of_another_kind_is_refused() {
        for (table, fault) in [
            (json!("r2"), "must be a table"),
            (json!({ "prefix": "x" }), "kind: is missing"),
            (json!({ "kind": "ftp" }), "kind: must be r2"),
            (
                json!({ "kind": "r2", "prefix": "../" }),
                "prefix: must be a path",
            ),
            (
                json!({ "kind": "r2", "prefix": "_oncepress/" }),
                "prefix: must be a path",
            ),
            (
                json!({ "kind": "queue", "binding": "JOBS" }),
                "binding: must not be JOBS",
            ),
            (
                json!({ "kind": "github", "repository": "a/b/c", "token": "TOKEN" }),
                "repository: must be `owner/name`",
            ),
            (
                json!({ "kind": "ghost", "url": "https://e.com/", "key": "TOKEN" }),
                "key: the secret",
            ),
            (
                json!({ "kind": "ghost", "url": "https://e.com/?a", "key": "GHOST" }),
                "url: must not",
            ),
            (
                json!({ "kind": "webhook", "url": "https://e.com/", "secrets": [] }),
                "secrets: must",
            ),
        ] {
            let told = parse(&table).unwrap_err();
            assert!(told[0].starts_with(fault), "{table}: {told:?}");
        }
    }

    #[test]
    fn one_branch_is_one_lane_however_its_repository_is_spelled() {
        let lane = |repository: &str| {
            let table = json!({ "kind": "github", "repository": repository, "token": "TOKEN" });
            parse(&table).unwrap().serial_lane("x")
        };
        assert_eq!(lane("Owner/Repo"), lane("owner/repo"));
        assert_ne!(lane("owner/repo"), lane("owner/other"));
    }
}
