//! Everything that the configuration comes to, typed; and whether the Worker may work with it.

use std::collections::BTreeMap;

use crate::config::{Config, Sources};
use crate::gemini::price::PriceTable;
use crate::key::pointer::JsonPointer;
use crate::publish::settings::PublisherSettings;
use crate::publish::template::Template;

/// What the configuration came to.
#[derive(Debug)]
pub struct Setup {
    /// The configuration, with defaults in place of what is faulty.
    pub config: Config,
    /// Destinations by name.
    pub publishers: BTreeMap<String, PublisherSettings>,
    /// Templates of pipelines, by `SITE/PIPELINE`.
    pub templates: BTreeMap<String, Template>,
    /// Prices by model and date.
    pub prices: PriceTable,
    /// What the derived key leaves out.
    pub ignores: Vec<JsonPointer>,
    /// What is wrong, as (variable, problem); a Worker with any fault refuses to work.
    pub faults: Vec<(String, String)>,
}

impl Setup {
    /// Reads the whole configuration; all faults are gathered.
    pub fn read(sources: Sources<'_>) -> Self {
        let (config, faults) = Config::parse(sources);
        let mut faults: Vec<(String, String)> =
            faults.into_iter().map(|fault| (fault.name, fault.problem)).collect();
        let mut publishers = BTreeMap::new();
        for (name, table) in &config.publishers {
            let read = PublisherSettings::parse(name, table, sources.text, &config.environment);
            match read {
                Ok(settings) => {
                    publishers.insert(name.clone(), settings);
                }
                Err(problems) => {
                    let path = format!("PUBLISHERS.{name}");
                    faults.extend(problems.into_iter().map(|problem| (path.clone(), problem)));
                }
            }
        }
        let templates = templates(&config, &mut faults);
        let prices = PriceTable::parse(&config.prices).unwrap_or_else(|problems| {
            let named = problems.into_iter().map(|fault| ("PRICES".to_owned(), fault.to_string()));
            faults.extend(named);
            PriceTable::default()
        });
        let ignores =
            config.identity_ignores.iter().filter_map(|text| JsonPointer::parse(text)).collect();
        Self { config, publishers, templates, prices, ignores, faults }
    }

    /// The template of a pipeline, where it has one and is the account's.
    pub fn template(&self, account: &str, site: &str, pipeline: &str) -> Option<&Template> {
        self.config.pipeline(account, site, pipeline)?;
        self.templates.get(&format!("{site}/{pipeline}"))
    }
}

fn templates(config: &Config, faults: &mut Vec<(String, String)>) -> BTreeMap<String, Template> {
    let mut templates = BTreeMap::new();
    for (key, pipeline) in &config.pipelines {
        let Some(value) = &pipeline.template else { continue };
        match Template::parse(value) {
            Ok(template) => {
                templates.insert(key.clone(), template);
            }
            Err(problem) => faults.push((format!("PIPELINES.{key}.template"), problem)),
        }
    }
    templates
}
