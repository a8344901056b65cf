//! The references in `docs/reference`, made from what the code declares: the tests here compare the files with it.
//!
//! `UPDATE=1 cargo test --workspace --bin longshore reference::` writes them anew.

use std::{fs, path::Path};

mod cli;
mod conditions;
mod configuration;
mod markdown;
mod metrics;
mod states;

/// Compares a file of the repository with `made`. With `UPDATE=1` in the environment it is written first.
pub(crate) fn is_in_the_repository(path: &str, made: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    #[expect(clippy::disallowed_methods, reason = "tests read the environment")]
    if std::env::var_os("UPDATE").is_some() {
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(&file, made).unwrap();
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    // The first line that differs says more than two whole files.
    let differs = found
        .lines()
        .zip(made.lines())
        .find(|(found, made)| found != made);
    assert!(
        found == made,
        "{path} is not what the code declares; first difference (found, declared): {differs:#?}\n\
         UPDATE=1 cargo test --workspace --bin longshore writes it anew"
    );
}

/// The first lines of a reference.
fn head(title: &str, about: &str) -> String {
    format!(
        "# {title}\n\n{about}\n\nThis page is made from the code, and a test compares it with the code: do not edit it.\n"
    )
}

#[test]
fn every_page_is_in_the_index_and_every_link_of_it_leads_to_a_page() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let index = fs::read_to_string(docs.join("README.md")).unwrap();
    let links = index.split("](").skip(1);
    let links: Vec<&str> = links.filter_map(|rest| rest.split(')').next()).collect();
    for link in &links {
        assert!(docs.join(link).is_file(), "{link}");
    }
    for folder in ["", "reference/"] {
        for entry in fs::read_dir(docs.join(folder)).unwrap() {
            let name = entry.unwrap().file_name();
            let page = format!("{folder}{}", name.to_str().unwrap());
            let is_page = page.ends_with(".md") && page != "README.md";
            assert!(!is_page || links.contains(&page.as_str()), "{page}");
        }
    }
}
