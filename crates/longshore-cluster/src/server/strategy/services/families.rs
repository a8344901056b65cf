//! The families of a Service's addresses. This cluster has one: IPv4.

use serde_json::{Value, json};

use super::{has_selector, needs_address, put_default, rules, set_texts, spec_text, texts};
use crate::server::error::Cause;

const OURS: &str = "IPv4";
const SINGLE: &str = "SingleStack";
const PREFERRED: &str = "PreferDualStack";
const REQUIRED: &str = "RequireDualStack";

/// Fills in `ipFamilyPolicy` and `ipFamilies`, or says what this cluster does not have.
pub(super) fn complete(service: &mut Value, old: Option<&Value>) -> Result<(), Vec<Cause>> {
    if !needs_address(service) || old.is_some_and(|old| stays_preferred(service, old)) {
        return Ok(());
    }
    let is_open = spec_text(service, "clusterIP") == "None" && !has_selector(service);
    let before = old.map_or("", |old| spec_text(old, "ipFamilyPolicy"));
    let policy = match before {
        "" if is_open => REQUIRED,
        "" => SINGLE,
        before => before,
    };
    put_default(service, "ipFamilyPolicy", json!(policy));
    refuse(rules::address_violations(service))?;
    let policy = spec_text(service, "ipFamilyPolicy").to_owned();
    let mut causes = reductions(service, old, &policy);
    causes.extend(surplus(service, &policy));
    causes.extend(add_families_of_addresses(service));
    refuse(causes)?;
    if is_open {
        complete_open(service, &policy);
        return Ok(());
    }
    refuse(unconfigured(service, &policy))?;
    if texts(service, "ipFamilies").is_empty() {
        set_texts(service, "ipFamilies", &[OURS.to_owned()]);
    }
    Ok(())
}

fn refuse(causes: Vec<Cause>) -> Result<(), Vec<Cause>> {
    if causes.is_empty() {
        Ok(())
    } else {
        Err(causes)
    }
}

/// A Service that prefers both families, and that a write leaves as it is, keeps what it has.
fn stays_preferred(service: &Value, old: &Value) -> bool {
    let is_same = |key: &str| texts(service, key) == texts(old, key);
    let before = spec_text(old, "ipFamilyPolicy");
    spec_text(service, "ipFamilyPolicy") == PREFERRED
        && matches!(before, "" | PREFERRED)
        && spec_text(service, "type") == spec_text(old, "type")
        && is_same("clusterIPs")
        && is_same("ipFamilies")
}

/// What an update lets go needs the policy that goes with it.
fn reductions(service: &mut Value, old: Option<&Value>, policy: &str) -> Vec<Cause> {
    let Some(old) = old else { return Vec::new() };
    let mut causes = Vec::new();
    for (key, what) in [
        ("clusterIPs", "secondary cluster IP"),
        ("ipFamilies", "secondary IP family"),
    ] {
        let (new, before) = (texts(service, key), texts(old, key));
        if policy == SINGLE {
            if new == before && new.len() > 1 {
                let first = vec![new[0].to_owned()];
                set_texts(service, key, &first);
            }
        } else if !new.is_empty() && new.len() < before.len() {
            let why = format!("must be 'SingleStack' to release the {what}");
            causes.push(Cause::invalid("spec.ipFamilyPolicy", &json!(policy), &why));
        }
    }
    causes
}

/// One family has one address.
fn surplus(service: &Value, policy: &str) -> Vec<Cause> {
    let several = |key: &str| policy == SINGLE && texts(service, key).len() == 2;
    let refused = [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")];
    let refused = refused.into_iter().filter(|(key, _)| several(key));
    let cause = |(_, what): (&str, &str)| {
        let why = format!(
            "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
        );
        Cause::invalid("spec.ipFamilyPolicy", &json!(policy), &why)
    };
    refused.map(cause).collect()
}

/// An address says its family.
fn add_families_of_addresses(service: &mut Value) -> Vec<Cause> {
    let addresses: Vec<String> = texts(service, "clusterIPs")
        .into_iter()
        .map(str::to_owned)
        .collect();
    let mut families: Vec<String> = texts(service, "ipFamilies")
        .into_iter()
        .map(str::to_owned)
        .collect();
    let mut causes = Vec::new();
    for (index, address) in addresses.iter().enumerate() {
        if address == "None" {
            break;
        }
        if index < families.len() {
            continue;
        }
        match rules::family_of(address) {
            OURS => families.push(OURS.to_owned()),
            family => {
                let field = format!("spec.clusterIPs[{index}]");
                let why = format!("{family} is not configured on this cluster");
                causes.push(Cause::invalid(&field, &json!(addresses), &why));
            }
        }
    }
    set_texts(service, "ipFamilies", &families);
    causes
}

/// A headless Service without selector may have endpoints of both families: others make them.
fn complete_open(service: &mut Value, policy: &str) {
    let mut families: Vec<String> = texts(service, "ipFamilies")
        .into_iter()
        .map(str::to_owned)
        .collect();
    if families.is_empty() {
        families.push(OURS.to_owned());
    }
    if families.len() < 2 && policy != SINGLE {
        let other = if families[0] == OURS { "IPv6" } else { OURS };
        families.push(other.to_owned());
    }
    set_texts(service, "ipFamilies", &families);
}

fn unconfigured(service: &Value, policy: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    if policy == REQUIRED {
        let why = "this cluster is not configured for dual-stack services";
        causes.push(Cause::invalid("spec.ipFamilyPolicy", &json!(policy), why));
    }
    for (index, family) in texts(service, "ipFamilies").into_iter().enumerate() {
        if family != OURS {
            let field = format!("spec.ipFamilies[{index}]");
            let why = "not configured on this cluster";
            causes.push(Cause::invalid(&field, &json!(family), why));
        }
    }
    causes
}
