//! Templates in texts, as in Go: `{{ .name }}`. Unknown ones stay as they are.

/// Replaces each `{{ .name }}` or `{{ $name }}` for which there is a value.
pub(crate) fn replace<E>(
    text: &str,
    mut value: impl FnMut(&str) -> Result<Option<String>, E>,
) -> Result<String, E> {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("{{") {
        let (before, candidate) = rest.split_at(at);
        replaced.push_str(before);
        let found = match parse(candidate) {
            Some((name, end)) => value(name)?.map(|value| (value, end)),
            None => None,
        };
        // A template may begin at the second of three braces.
        let (inserted, end) = found.unwrap_or_else(|| ("{".to_owned(), 1));
        replaced.push_str(&inserted);
        rest = &candidate[end..];
    }
    replaced.push_str(rest);
    Ok(replaced)
}

/// The name in a template at the beginning of a text, and where the template ends.
fn parse(text: &str) -> Option<(&str, usize)> {
    let inner = text.strip_prefix("{{")?.trim_start();
    let named = inner.strip_prefix(['.', '$'])?;
    let end = named.find(|c: char| c == '}' || c.is_whitespace())?;
    let (name, rest) = named.split_at(end);
    let rest = rest.trim_start().strip_prefix("}}")?;
    Some((name, text.len() - rest.len()))
}
