//! The output gate: a pipeline's own rules for what may be published by itself.

use serde_json::Value;

use super::faults::{Faults, Members};

/// Rules that an output must keep; one that does not is held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputGate {
    /// Fewest characters.
    pub chars_min: Option<u64>,
    /// Most characters.
    pub chars_max: Option<u64>,
    /// Texts that must all occur.
    pub must_contain: Vec<String>,
    /// Texts of which none may occur.
    pub must_not_contain: Vec<String>,
}

/// Why the gate refused an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateRefusal {
    /// Fewer characters than asked for.
    TooShort,
    /// More characters than allowed.
    TooLong,
    /// A text that must occur does not.
    LacksText,
    /// A text that may not occur does.
    HasForbiddenText,
}

impl GateRefusal {
    /// The stable reason with which the generation is held, whatever the rule.
    pub const CODE: &'static str = "gate";

    /// Which rule it was, for people.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::TooShort => "the text is shorter than the pipeline's `min_chars`",
            Self::TooLong => "the text is longer than the pipeline's `max_chars`",
            Self::LacksText => "the text lacks something of the pipeline's `must_contain`",
            Self::HasForbiddenText => "the text has something of the pipeline's `must_not_contain`",
        }
    }
}

impl OutputGate {
    /// Whether an output may be published by itself.
    pub fn check(&self, text: &str) -> Result<(), GateRefusal> {
        let chars = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
        if self.chars_min.is_some_and(|min| chars < min) {
            return Err(GateRefusal::TooShort);
        }
        if self.chars_max.is_some_and(|max| chars > max) {
            return Err(GateRefusal::TooLong);
        }
        if !self
            .must_contain
            .iter()
            .all(|needed| text.contains(needed.as_str()))
        {
            return Err(GateRefusal::LacksText);
        }
        if self
            .must_not_contain
            .iter()
            .any(|forbidden| text.contains(forbidden.as_str()))
        {
            return Err(GateRefusal::HasForbiddenText);
        }
        Ok(())
    }

    pub(super) fn parse(path: &str, value: &Value, faults: &mut Faults) -> Self {
        let known = ["min_chars", "max_chars", "must_contain", "must_not_contain"];
        let Some(members) = Members::of(path, value, &known, faults) else {
            return Self::default();
        };
        let gate = Self {
            chars_min: members.count("min_chars", faults),
            chars_max: members.count("max_chars", faults),
            must_contain: members.texts("must_contain", faults).unwrap_or_default(),
            must_not_contain: members
                .texts("must_not_contain", faults)
                .unwrap_or_default(),
        };
        if gate
            .chars_max
            .is_some_and(|max| max < gate.chars_min.unwrap_or(0))
        {
            faults.add(path, "has a max_chars below its min_chars");
        }
        gate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_refuses_with_its_own_reason() {
        let gate = OutputGate {
            chars_min: Some(3),
            chars_max: Some(5),
            must_contain: vec!["é".to_owned()],
            must_not_contain: vec!["AI".to_owned()],
        };
        assert_eq!(gate.check("ééé"), Ok(()));
        assert_eq!(gate.check("éé"), Err(GateRefusal::TooShort));
        assert_eq!(gate.check("éééééé"), Err(GateRefusal::TooLong));
        assert_eq!(gate.check("eee"), Err(GateRefusal::LacksText));
        assert_eq!(gate.check("é AI"), Err(GateRefusal::HasForbiddenText));
    }
}
