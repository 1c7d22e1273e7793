//! What a generation used, in tokens, as Gemini counts it.

use serde_json::Value;

/// Token counts of one answer. Gemini leaves out a count that is zero.
///
/// ```
/// use oncepress::gemini::usage::Usage;
/// let usage = Usage::read(&serde_json::json!({
///     "promptTokenCount": 11_000, "cachedContentTokenCount": 4_096,
///     "thoughtsTokenCount": 500, "totalTokenCount": 11_500,
/// }));
/// assert_eq!((usage.prompt_tokens, usage.cached_tokens), (11_000, 4_096));
/// assert_eq!((usage.output_tokens, usage.thought_tokens), (0, 500));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, the cached ones included.
    pub prompt_tokens: u64,
    /// Those of the prompt that came from a cache.
    pub cached_tokens: u64,
    /// Those of the prompt that are sound, which some models price higher.
    pub audio_tokens: u64,
    /// Those of the cached ones that are sound.
    pub cached_audio_tokens: u64,
    /// Tokens that tools put into the prompt; billed as input.
    pub tool_prompt_tokens: u64,
    /// Tokens of the answer, without thoughts.
    pub output_tokens: u64,
    /// Tokens of thoughts; billed as output.
    pub thought_tokens: u64,
    /// All tokens.
    pub total_tokens: u64,
    /// The service tier that served the request.
    pub tier: Option<Tier>,
}

/// A service tier, which multiplies the price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tier {
    /// The list price.
    #[default]
    Standard,
    /// Half of it, served when there is room.
    Flex,
    /// 1.8 times of it, served first.
    Priority,
}

impl Usage {
    /// Reads a `usageMetadata` member; what is missing or no count is zero.
    pub fn read(metadata: &Value) -> Self {
        let of = |name| metadata.get(name).map_or(0, count);
        let mut usage = Self {
            prompt_tokens: of("promptTokenCount"),
            cached_tokens: of("cachedContentTokenCount"),
            audio_tokens: audio(metadata, "promptTokensDetails"),
            cached_audio_tokens: audio(metadata, "cacheTokensDetails"),
            tool_prompt_tokens: of("toolUsePromptTokenCount"),
            output_tokens: of("candidatesTokenCount"),
            thought_tokens: of("thoughtsTokenCount"),
            total_tokens: of("totalTokenCount"),
            tier: metadata
                .get("serviceTier")
                .and_then(Value::as_str)
                .and_then(Tier::parse),
        };
        if usage.total_tokens == 0 {
            usage.total_tokens = usage
                .prompt_tokens
                .saturating_add(usage.tool_prompt_tokens)
                .saturating_add(usage.billed_output_tokens());
        }
        usage
    }

    /// The tokens billed as output.
    pub fn billed_output_tokens(&self) -> u64 {
        self.output_tokens.saturating_add(self.thought_tokens)
    }
}

impl Tier {
    /// Reads the name of a tier, as a request, an answer or its `x-gemini-service-tier` spells it.
    pub fn parse(name: &str) -> Option<Self> {
        let name = name.trim().to_ascii_lowercase();
        match name.strip_prefix("service_tier_").unwrap_or(&name) {
            "standard" => Some(Self::Standard),
            "flex" => Some(Self::Flex),
            "priority" => Some(Self::Priority),
            _ => None,
        }
    }
}

/// A count, which Google's JSON may also spell as a string; never over [`COUNT_MAX`].
pub(crate) fn count(value: &Value) -> u64 {
    let exact = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    exact.unwrap_or(0).min(COUNT_MAX)
}

fn audio(metadata: &Value, name: &str) -> u64 {
    let details = metadata.get(name).and_then(Value::as_array);
    let of_sound = details
        .into_iter()
        .flatten()
        .filter(|detail| detail.get("modality").and_then(Value::as_str) == Some("AUDIO"));
    of_sound
        .map(|detail| detail.get("tokenCount").map_or(0, count))
        .fold(0, u64::saturating_add)
        .min(COUNT_MAX)
}

/// Largest believable count: D1 passes numbers as doubles, which are exact below 2^53.
const COUNT_MAX: u64 = (1 << 53) - 1;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_counts_are_zero_and_a_missing_total_is_their_sum() {
        let usage = Usage::read(&json!({"promptTokenCount": 7, "candidatesTokenCount": "5"}));
        assert_eq!(
            (
                usage.output_tokens,
                usage.thought_tokens,
                usage.total_tokens
            ),
            (5, 0, 12)
        );
    }

    #[test]
    fn what_is_no_count_is_zero_and_a_huge_count_is_cut() {
        let usage = Usage::read(&json!({
            "promptTokenCount": -3, "candidatesTokenCount": "many", "thoughtsTokenCount": null,
            "totalTokenCount": u64::MAX,
        }));
        assert_eq!((usage.prompt_tokens, usage.output_tokens), (0, 0));
        assert_eq!(usage.total_tokens, COUNT_MAX);
    }

    #[test]
    fn sound_is_counted_apart() {
        let usage = Usage::read(&json!({
            "promptTokenCount": 100,
            "promptTokensDetails": [
                {"modality": "TEXT", "tokenCount": 60}, {"modality": "AUDIO", "tokenCount": 40},
            ],
            "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 10}],
        }));
        assert_eq!((usage.audio_tokens, usage.cached_audio_tokens), (40, 10));
    }

    #[test]
    fn a_tier_is_read_in_every_spelling() {
        let tiers = ["flex", "PRIORITY", "SERVICE_TIER_STANDARD", "deferred"].map(Tier::parse);
        let read = [
            Some(Tier::Flex),
            Some(Tier::Priority),
            Some(Tier::Standard),
            None,
        ];
        assert_eq!(tiers, read);
    }
}
