//! Rule 8: the template of an Ingress.

use super::{Invalid, Validity};
use crate::spec::IngressSpec;

pub(super) fn validate(ingress: Option<&IngressSpec>, name: &str, namespace: &str) -> Validity {
    let Some(ingress) = ingress else {
        return Ok(());
    };
    let Some(template) = &ingress.template else {
        return Err(Invalid::new("Ingress template must be defined"));
    };
    let url = with_scheme(template);
    let url = replace_ignoring_case(&url, "{{name}}", name);
    let url = replace_ignoring_case(&url, "{{namespace}}", namespace);
    authority_error(&url).map_or(Ok(()), |error| {
        Err(Invalid(format!(
            "Unable to process the Ingress template({template}). Error: {error}"
        )))
    })
}

/// The template with `http://` before it, unless it has a scheme of HTTP.
fn with_scheme(template: &str) -> String {
    let lower = template.to_ascii_lowercase();
    if lower.starts_with("http://") || lower.starts_with("https://") {
        template.to_owned()
    } else {
        format!("http://{template}")
    }
}

fn replace_ignoring_case(text: &str, placeholder: &str, value: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut replaced = String::new();
    let mut end = 0;
    for (start, found) in lower.match_indices(placeholder) {
        replaced.push_str(&text[end..start]);
        replaced.push_str(value);
        end = start + found.len();
    }
    replaced.push_str(&text[end..]);
    replaced
}

/// What is wrong with host and port, in the words of Java's `java.net.URL`.
fn authority_error(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("//")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host_and_port = authority.rsplit_once('@').map_or(authority, |(_, it)| it);
    let port = if host_and_port.starts_with('[') {
        let Some((_, after)) = host_and_port.split_once(']') else {
            return Some(format!("Invalid host: {host_and_port}"));
        };
        after.strip_prefix(':')?
    } else {
        host_and_port.split_once(':')?.1
    };
    match port.parse::<i32>() {
        Ok(port) if port < -1 => Some(format!("Invalid port number :{port}")),
        Ok(_) => None,
        Err(_) if port.is_empty() => None,
        Err(_) => Some(format!("For input string: \"{port}\"")),
    }
}
