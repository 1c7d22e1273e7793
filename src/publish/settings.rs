//! The settings of one publisher: a table of the configuration, read once into types.

use serde_json::Value;

use super::fields::Fields;
use super::queue::QueueSettings;
use super::r2::R2Settings;
use super::ssrf::Loopback;
use super::template::Template;
use super::webhook::WebhookSettings;
use super::{IdempotencyClass, Parcel, Publication};

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
            Kind::Queue(_) => "queue",
        }
    }

    /// What a repeat does at this destination.
    pub fn class(&self) -> IdempotencyClass {
        match &self.kind {
            Kind::R2(_) => IdempotencyClass::Native,
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
    pub fn lane(&self, _target: &str) -> Option<String> {
        match &self.kind {
            // Two deliveries for one slug would race for it; for two slugs nothing is shared.
            Kind::R2(_) | Kind::Webhook(_) | Kind::Queue(_) => None,
        }
    }

    /// Begins one attempt at publishing `parcel`.
    pub fn begin(&self, parcel: Parcel) -> Box<dyn Publication> {
        match &self.kind {
            Kind::R2(settings) => Box::new(settings.begin(parcel)),
            Kind::Webhook(settings) => Box::new(settings.begin(&parcel)),
            Kind::Queue(settings) => Box::new(settings.begin(&parcel)),
        }
    }
}

impl Kind {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let kind = fields.required("kind");
        match kind.as_deref().unwrap_or_default() {
            "r2" => R2Settings::read(fields).map(Self::R2),
            "webhook" => WebhookSettings::read(fields).map(Self::Webhook),
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
