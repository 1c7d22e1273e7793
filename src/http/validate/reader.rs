//! Reading the members of a JSON object while gathering every fault.

use std::ops::RangeInclusive;

use super::bounds::{FAULTS_MAX, NAME_MAX_BYTES};
use crate::error::Fault;
use crate::key::json::Json;

/// The faults found so far: at most [`FAULTS_MAX`], so that an answer stays small.
#[derive(Debug, Default)]
pub(super) struct Faults {
    found: Vec<Fault>,
}

impl Faults {
    /// Notes a fault.
    pub(super) fn add(&mut self, pointer: impl Into<String>, detail: impl Into<String>) {
        if self.found.len() < FAULTS_MAX {
            self.found.push(Fault::new(pointer, detail));
        }
    }

    /// The value, or `None` with its fault noted.
    pub(super) fn keep<T>(&mut self, pointer: &str, parsed: Result<T, String>) -> Option<T> {
        parsed.map_err(|detail| self.add(pointer, detail)).ok()
    }

    /// The value where nothing was wrong, else all faults.
    pub(super) fn settle<T>(self, value: Option<T>) -> Result<T, Vec<Fault>> {
        match (value, self.found.is_empty()) {
            (Some(value), true) => Ok(value),
            (_, false) => Err(self.found),
            // A value is missing only after a fault was noted; were it not, say so plainly.
            (None, true) => Err(vec![Fault::new("", "is not valid")]),
        }
    }
}

/// The members of one object, and where it is.
#[derive(Clone, Debug)]
pub(super) struct Object<'a> {
    pointer: String,
    members: &'a [(String, Json)],
}

impl<'a> Object<'a> {
    /// The object at `pointer`; anything else, and each member not in `known`, is a fault.
    pub(super) fn of(
        pointer: &str,
        json: &'a Json,
        known: &[&str],
        faults: &mut Faults,
    ) -> Option<Self> {
        let object = Self::any(pointer, json, faults)?;
        for (name, _) in object
            .members
            .iter()
            .filter(|(name, _)| !known.contains(&name.as_str()))
        {
            if name.len() <= NAME_MAX_BYTES {
                faults.add(object.at(name), "is not a known member");
            } else {
                faults.add(
                    pointer,
                    "has a member that is not known, with a very long name",
                );
            }
        }
        Some(object)
    }

    /// The object at `pointer`, whatever its members are called.
    pub(super) fn any(pointer: &str, json: &'a Json, faults: &mut Faults) -> Option<Self> {
        let Some(members) = json.as_object() else {
            faults.add(pointer, "must be an object");
            return None;
        };
        Some(Self {
            pointer: pointer.to_owned(),
            members,
        })
    }

    /// Where a member is.
    pub(super) fn at(&self, name: &str) -> String {
        format!(
            "{}/{}",
            self.pointer,
            name.replace('~', "~0").replace('/', "~1")
        )
    }

    /// All members.
    pub(super) fn members(&self) -> &'a [(String, Json)] {
        self.members
    }

    /// A member as it is.
    pub(super) fn get(&self, name: &str) -> Option<&'a Json> {
        self.members
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value)
    }

    /// A string.
    pub(super) fn string(&self, name: &str, faults: &mut Faults) -> Option<&'a str> {
        let value = self.get(name)?;
        if value.as_str().is_none() {
            faults.add(self.at(name), "must be a string");
        }
        value.as_str()
    }

    /// A line of text for people: so many characters, none of them a control character.
    pub(super) fn line(
        &self,
        name: &str,
        chars: RangeInclusive<usize>,
        faults: &mut Faults,
    ) -> Option<String> {
        let text = self.string(name, faults)?;
        if !chars.contains(&text.chars().count()) {
            let (min, max) = (chars.start(), chars.end());
            faults.add(
                self.at(name),
                format!("must have {min} to {max} characters"),
            );
            return None;
        }
        if text.chars().any(char::is_control) {
            faults.add(self.at(name), "must have no control characters");
            return None;
        }
        Some(text.to_owned())
    }

    /// A string that `parse` accepts.
    pub(super) fn parsed<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
        faults: &mut Faults,
    ) -> Option<T> {
        let text = self.string(name, faults)?;
        faults.keep(&self.at(name), parse(text))
    }

    /// A whole number within a range, however it is spelled.
    pub(super) fn integer(
        &self,
        name: &str,
        range: RangeInclusive<i64>,
        faults: &mut Faults,
    ) -> Option<i64> {
        let value = self.get(name)?;
        let number = value.as_number().and_then(crate::key::json::Number::to_i64);
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let (min, max) = (range.start(), range.end());
            faults.add(
                self.at(name),
                format!("must be a whole number from {min} to {max}"),
            );
        }
        number
    }

    /// An array.
    pub(super) fn array(&self, name: &str, faults: &mut Faults) -> Option<&'a [Json]> {
        let value = self.get(name)?;
        if value.as_array().is_none() {
            faults.add(self.at(name), "must be an array");
        }
        value.as_array()
    }

    /// An array of objects, whose members are Gemini's to judge.
    pub(super) fn objects(&self, name: &str, faults: &mut Faults) -> Option<&'a [Json]> {
        let items = self.array(name, faults)?;
        for (at, _) in items
            .iter()
            .enumerate()
            .filter(|(_, item)| item.as_object().is_none())
        {
            faults.add(format!("{}/{at}", self.at(name)), "must be an object");
        }
        Some(items)
    }

    /// A member that must be an object, whose members are Gemini's to judge.
    pub(super) fn object(&self, name: &str, faults: &mut Faults) -> Option<Self> {
        Self::any(&self.at(name), self.get(name)?, faults)
    }

    /// Notes that a member is missing, where it is.
    pub(super) fn require(&self, name: &str, faults: &mut Faults) {
        if self.get(name).is_none() {
            faults.add(self.at(name), "is required");
        }
    }
}
