//! Makes Google's words fit for people: one line, short, without keys and long quotations.

/// Google's message as one line of at most `chars_max` characters.
///
/// Anything that looks like a key is replaced, and so is a long quotation, since Google quotes the
/// request in what it says of it.
pub(crate) fn for_people(message: &str, chars_max: usize) -> String {
    let line: Vec<&str> = message.split_whitespace().collect();
    let line = without_quotations(&line.join(" "));
    let words: Vec<String> = line.split(' ').map(without_keys).collect();
    cut(&words.join(" "), chars_max)
}

/// Cuts at a character's boundary and says so.
fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some(_) => text
            .chars()
            .take(chars_max.saturating_sub(1))
            .chain(['…'])
            .collect(),
    }
}

/// Replaces what stands between double quotes where it is too long for the name of a member.
fn without_quotations(text: &str) -> String {
    let pieces = text.split('"').enumerate().map(|(at, piece)| {
        let quoted = at % 2 == 1;
        if quoted && piece.chars().count() > QUOTATION_CHARS_MAX {
            "…"
        } else {
            piece
        }
    });
    pieces.collect::<Vec<_>>().join("\"")
}

/// Replaces the runs of key characters in a word that look like secrets.
fn without_keys(word: &str) -> String {
    let mut clean = String::with_capacity(word.len());
    let mut run = String::new();
    for c in word.chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') {
            run.push(c);
        } else {
            push_run(&mut clean, &mut run);
            clean.push(c);
        }
    }
    push_run(&mut clean, &mut run);
    clean
}

fn push_run(clean: &mut String, run: &mut String) {
    let after_name = clean.ends_with("key=") || clean.ends_with("token=");
    let secret = is_secret(run) || (after_name && !run.is_empty());
    clean.push_str(if secret { REDACTED } else { run });
    run.clear();
}

fn is_secret(run: &str) -> bool {
    let prefixed = SECRET_PREFIXES.iter().any(|prefix| run.starts_with(prefix));
    let has = |class: fn(&char) -> bool| run.chars().any(|c| class(&c));
    let mixed =
        has(char::is_ascii_digit) && has(char::is_ascii_lowercase) && has(char::is_ascii_uppercase);
    (prefixed && run.len() >= PREFIXED_SECRET_CHARS_MIN) || (mixed && run.len() >= SECRET_CHARS_MIN)
}

/// How Google's keys and tokens, and ours, begin.
const SECRET_PREFIXES: [&str; 4] = ["AIza", "ya29", "opk_", "GOCSPX-"];
/// A prefix alone, or a word that happens to begin so, is no secret.
const PREFIXED_SECRET_CHARS_MIN: usize = 12;
/// Google's keys have 39 characters and their new form more; names of quotas have no digits.
const SECRET_CHARS_MIN: usize = 30;
/// Names of members and of fields are shorter; prompts are longer.
const QUOTATION_CHARS_MAX: usize = 60;
const REDACTED: &str = "[redacted]";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_are_replaced_wherever_they_stand() {
        let key = "AIzaSyA1234567890abcdefghijklmnopqrstuv";
        for text in [
            format!("API key {key} is not valid"),
            format!("bad (x-goog-api-key:{key})"),
            format!("GET /v1beta/models?key={key}&alt=sse"),
            "Authorization: Bearer ya29.a0AfH6SMBx1234567890qwertyUIOPasdfGHJK".to_owned(),
        ] {
            let clean = for_people(&text, 500);
            assert!(clean.contains(REDACTED), "{clean}");
            assert!(!clean.contains("1234567890"), "{clean}");
        }
        assert_eq!(for_people("?key=short&x=1", 500), "?key=[redacted]&x=1");
    }

    #[test]
    fn names_of_quotas_and_models_stay() {
        let text = "generativelanguage.googleapis.com/generate_content_free_tier_requests, \
                    limit: 20, model: gemini-3.1-flash-lite \
                    GenerateRequestsPerDayPerProjectPerModel-FreeTier";
        assert_eq!(for_people(text, 500), text);
    }

    #[test]
    fn long_quotations_go_and_short_ones_stay() {
        let prompt = "Write about my secret plan ".repeat(4);
        let text = format!("Invalid value at 'contents[0]' (TYPE_FLOAT), \"{prompt}\" near \"x\"");
        insta::assert_snapshot!(
            for_people(&text, 500),
            @r#"Invalid value at 'contents[0]' (TYPE_FLOAT), "…" near "x""#
        );
    }

    proptest! {
        #[test]
        fn any_text_becomes_one_short_line(text in "\\PC*|[\\s\\S]*", chars_max in 1_usize..300) {
            let clean = for_people(&text, chars_max);
            prop_assert!(clean.chars().count() <= chars_max);
            prop_assert!(!clean.contains(['\n', '\r']));
        }
    }
}
