//! What the README shows is what happens.

use std::{fs, path::Path};

use crate::{longshore, outcome, repository};

/// The file behind the README's example of `dags lint`.
const BAD: &str = "dag_id: etl\ntasks:\n  extract:\n    comand: [sh, -c, \"exit 0\"]\n  load:\n    depends_on: [extrct]\n    command: [\"true\"]\n";

fn readme() -> String {
    fs::read_to_string(repository().join("README.md")).unwrap()
}

/// The command and the shown output of each block below a `<!-- run… -->` line, with the exit code.
fn examples(readme: &str) -> Vec<(i32, String, String)> {
    let mut examples = Vec::new();
    for part in readme.split("<!-- run").skip(1) {
        let (note, rest) = part.split_once("-->\n```console\n$ ").unwrap();
        let code = note
            .trim()
            .strip_prefix(": exit ")
            .map_or(0, |code| code.parse().unwrap());
        let (command, rest) = rest.split_once('\n').unwrap();
        let (shown, _) = rest.split_once("```").unwrap();
        examples.push((code, command.to_owned(), shown.to_owned()));
    }
    examples
}

/// Times, ids and paths differ from run to run: of each line the words that do not.
fn lasting(output: &str) -> Vec<String> {
    let is_lasting = |word: &&str| !word.contains(['/', '.']) && !word.ends_with('s');
    let lines = output.lines().map(|line| {
        let words = line.split_whitespace().filter(is_lasting);
        words.collect::<Vec<_>>().join(" ")
    });
    lines.collect()
}

#[test]
fn the_commands_of_the_readme_do_what_it_shows() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("bad.yaml"), BAD).unwrap();
    let examples = examples(&readme());
    assert_eq!(examples.len(), 2);
    for (expected, line, shown) in examples {
        let args = line
            .strip_prefix("longshore ")
            .unwrap()
            .split(' ')
            .map(|arg| {
                if arg.starts_with("examples/") {
                    repository().join(arg).display().to_string()
                } else {
                    arg.to_owned()
                }
            });
        let mut command = longshore();
        command
            .args(args)
            .env("HOME", folder.path())
            .current_dir(folder.path());
        let (code, stdout, stderr) = outcome(&mut command);
        assert_eq!(code, expected, "{line}\n{stderr}");
        let found = if line.contains(" lint ") {
            stderr + &stdout
        } else {
            stdout
        };
        assert_eq!(lasting(&found), lasting(&shown), "{line}\n{found}");
    }
}

#[test]
fn the_links_of_the_readme_lead_somewhere() {
    let readme = readme();
    for part in readme.split("](").skip(1) {
        let (target, _) = part.split_once(')').unwrap();
        assert!(Path::new(&repository()).join(target).exists(), "{target}");
    }
}

#[test]
fn the_dag_file_of_the_readme_is_one() {
    let readme = readme();
    let (_, rest) = readme.split_once("```yaml\n").unwrap();
    let (dag, _) = rest.split_once("```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("dag.yaml"), dag).unwrap();
    fs::write(folder.path().join("load.sh"), "true\n").unwrap();
    let (code, _, stderr) = outcome(
        longshore()
            .args(["dags", "lint"])
            .arg(folder.path().join("dag.yaml")),
    );
    assert_eq!(code, 0, "{stderr}");
}
