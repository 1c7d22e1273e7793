//! A checker for the part of JSON Schema that `openapi.json` uses; an unknown keyword fails.

use regex::Regex;
use serde_json::Value;

/// How a value is compared with a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The whole value: required members must be there.
    Whole,
    /// A part of it, in which `/pattern/` and `{placeholder}` stand for any scalar.
    Part,
}

/// What is wrong with `value`, each with its place.
pub(crate) fn faults(
    document: &Value,
    schema: &Value,
    value: &Value,
    extent: Extent,
) -> Vec<String> {
    let mut checker = Checker {
        document,
        extent,
        faults: Vec::new(),
    };
    checker.check(schema, value, "");
    checker.faults
}

struct Checker<'a> {
    document: &'a Value,
    extent: Extent,
    faults: Vec<String>,
}

impl Checker<'_> {
    fn check(&mut self, schema: &Value, value: &Value, at: &str) {
        let open = self.extent == Extent::Part && value.as_str().is_some_and(is_open);
        for (keyword, rule) in schema.as_object().unwrap() {
            match keyword.as_str() {
                "description" | "default" | "format" | "uniqueItems" => {}
                "$ref" => {
                    let target = resolve(self.document, rule.as_str().unwrap()).clone();
                    self.check(&target, value, at);
                }
                "allOf" => rule
                    .as_array()
                    .unwrap()
                    .iter()
                    .for_each(|s| self.check(s, value, at)),
                "anyOf" => {
                    let any =
                        rule.as_array().unwrap().iter().any(|schema| {
                            faults(self.document, schema, value, self.extent).is_empty()
                        });
                    self.expect(any, at, "fits none of anyOf");
                }
                "required" => {
                    for name in rule
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|name| name.as_str().unwrap())
                    {
                        let there = self.extent == Extent::Part || value.get(name).is_some();
                        self.expect(there, at, &format!("lacks {name}"));
                    }
                }
                "properties" => self.members(rule, value, at),
                "additionalProperties" => self.further(schema, rule, value, at),
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(rule, item, &format!("{at}/{index}"));
                    }
                }
                _ if open => {}
                _ => self.rule(keyword, rule, value, at),
            }
        }
    }

    fn rule(&mut self, keyword: &str, rule: &Value, value: &Value, at: &str) {
        let chars = value.as_str().map(|text| text.chars().count() as u64);
        let fits = match keyword {
            "type" => match rule {
                Value::Array(types) => types.iter().any(|name| is_of(name, value)),
                name => is_of(name, value),
            },
            "enum" => rule.as_array().unwrap().contains(value),
            "const" => rule == value,
            "pattern" => value
                .as_str()
                .is_none_or(|text| pattern(rule).is_match(text)),
            "minLength" => chars.is_none_or(|count| count >= rule.as_u64().unwrap()),
            "maxLength" => chars.is_none_or(|count| count <= rule.as_u64().unwrap()),
            "minimum" => value
                .as_i64()
                .is_none_or(|number| number >= rule.as_i64().unwrap()),
            "maximum" => value
                .as_i64()
                .is_none_or(|number| number <= rule.as_i64().unwrap()),
            "minItems" | "maxItems" | "maxProperties" => self.count_fits(keyword, rule, value),
            "propertyNames" => value.as_object().is_none_or(|members| {
                members.keys().all(|name| {
                    faults(self.document, rule, &name.as_str().into(), Extent::Whole).is_empty()
                })
            }),
            unknown => panic!("the checker does not know {unknown}"),
        };
        self.expect(fits, at, &format!("breaks {keyword} {rule}"));
    }

    fn count_fits(&self, keyword: &str, rule: &Value, value: &Value) -> bool {
        let elements = value.as_array().map(Vec::len);
        let count = elements.or(value.as_object().map(serde_json::Map::len));
        let bound = usize::try_from(rule.as_u64().unwrap()).unwrap();
        let part = self.extent == Extent::Part;
        count.is_none_or(|count| {
            if keyword == "minItems" {
                part || count >= bound
            } else {
                count <= bound
            }
        })
    }

    fn members(&mut self, properties: &Value, value: &Value, at: &str) {
        for (name, schema) in properties.as_object().unwrap() {
            if let Some(member) = value.get(name) {
                self.check(schema, member, &format!("{at}/{name}"));
            }
        }
    }

    /// Members that `properties` does not name.
    fn further(&mut self, schema: &Value, rule: &Value, value: &Value, at: &str) {
        for (name, member) in value.as_object().into_iter().flatten() {
            let named = schema
                .pointer("/properties")
                .is_some_and(|all| all.get(name).is_some());
            match rule {
                _ if named => {}
                Value::Bool(allowed) => {
                    self.expect(*allowed, at, &format!("has an unknown {name}"));
                }
                schema => self.check(schema, member, &format!("{at}/{name}")),
            }
        }
    }

    fn expect(&mut self, fits: bool, at: &str, fault: &str) {
        if !fits {
            self.faults.push(format!("{at}: {fault}"));
        }
    }
}

/// What a reference within the document points at.
pub(crate) fn resolve<'a>(document: &'a Value, reference: &str) -> &'a Value {
    let pointer = reference
        .strip_prefix('#')
        .expect("references stay within the document");
    document
        .pointer(pointer)
        .unwrap_or_else(|| panic!("{reference} points at nothing"))
}

/// Whether a text of a transcript stands for what only the run will show.
pub(crate) fn is_open(text: &str) -> bool {
    (text.len() > 2 && text.starts_with('/') && text.ends_with('/')) || text.contains('{')
}

fn is_of(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        unknown => panic!("the checker does not know the type {unknown}"),
    }
}

fn pattern(rule: &Value) -> Regex {
    Regex::new(rule.as_str().unwrap()).unwrap()
}

#[test]
fn the_checker_finds_what_does_not_fit() {
    let document = serde_json::json!({ "n": { "type": "integer", "minimum": 1 } });
    let schema = serde_json::json!({
        "type": "object", "required": ["a"], "additionalProperties": false,
        "properties": { "a": { "$ref": "#/n" }, "b": { "enum": ["x", null] } },
    });
    let count = |value: Value, extent| faults(&document, &schema, &value, extent).len();
    let json = |text: &str| serde_json::from_str(text).unwrap();
    for fitting in [r#"{"a":1}"#, r#"{"a":2,"b":null}"#] {
        assert_eq!(count(json(fitting), Extent::Whole), 0, "{fitting}");
    }
    for faulty in [
        "[]",
        "{}",
        r#"{"a":0}"#,
        r#"{"a":"1"}"#,
        r#"{"a":1,"b":"y"}"#,
        r#"{"a":1,"c":1}"#,
    ] {
        assert_ne!(count(json(faulty), Extent::Whole), 0, "{faulty}");
    }
    assert_eq!(count(json(r#"{"b":"/^x$/"}"#), Extent::Part), 0);
}
