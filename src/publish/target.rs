//! Targets: where in a destination a text goes.

/// Checks a target whose placeholders are filled in: a relative path that leads nowhere else.
///
/// ```
/// use oncepress::publish::target::check;
/// assert!(check("blog/2026-11-30/犬と猫.md").is_ok());
/// assert!(check("blog/../secrets.md").is_err());
/// ```
pub fn check(target: &str) -> Result<(), &'static str> {
    if target.is_empty() || target.len() > TARGET_MAX_BYTES {
        return Err("the target must have 1 to 900 bytes");
    }
    if !is_path(target) {
        return Err(
            "the target must be a relative path without empty, `.` or `..` parts, `\\`, \
             invisible characters or outer white space",
        );
    }
    Ok(())
}

/// A relative path with nothing in it that could lead elsewhere or hide.
pub(crate) fn is_path(text: &str) -> bool {
    let visible = text
        .chars()
        .all(|c| !c.is_control() && c != '\\' && !is_invisible(c));
    let whole = text.split('/').all(|part| !matches!(part, "" | "." | ".."));
    visible && whole && text.trim() == text
}

/// Marks that turn the reading direction or take no room: they make two names look like one.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// R2's limit for a whole name is 1,024 bytes, and a prefix needs some of them.
const TARGET_MAX_BYTES: usize = 900;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_elsewhere_or_hides_is_refused() {
        for target in [
            "",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "a/../b",
            "../a",
            "a/.",
            "a\\b",
            "a\nb",
            "a\u{0}b",
            " a",
            "a ",
            "a\u{202e}b",
            "a\u{200b}",
            "\u{feff}a",
            "a\u{7f}",
        ] {
            assert!(check(target).is_err(), "{target:?} passed");
        }
        assert!(check(&"a".repeat(901)).is_err());
        assert!(check(&"a".repeat(900)).is_ok());
        assert!(check("a b/.hidden/...").is_ok());
    }
}
