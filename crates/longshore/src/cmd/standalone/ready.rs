//! The output of a service that is ready: its addresses and directories, and what to do next.

use std::{fmt::Write, path::Path};

use serde_json::{Value, json};

use super::StandaloneArgs;
use crate::{
    cli::{Format, Globals},
    cmd::run::resume::quoted,
    error::counted,
    output::{self, BAD, DIM, GOOD},
    service::{Service, ServiceConfig},
};

/// The addresses and directories that a ready service prints.
#[derive(Debug)]
pub(super) struct Ready {
    data_dir: String,
    kubeconfig: String,
    kubernetes: String,
    server: String,
    metrics: String,
    dags_folder: String,
    database: &'static str,
    n_dags: usize,
    is_ephemeral: bool,
    next: [String; 3],
}

impl Ready {
    pub(super) fn of(service: &Service, config: &ServiceConfig, args: &StandaloneArgs) -> Self {
        let data_dir = &config.data_dir;
        let dags = service.dags();
        // Commands find a service in the default directory by themselves.
        let is_default = args.data_dir.data_dir.is_none() && !args.data_dir.ephemeral;
        let flags = if is_default {
            String::new()
        } else {
            format!(" --data-dir {}", quoted(data_dir))
        };
        let start_one = match dags.first() {
            Some(dag_id) => format!("longshore dags trigger {dag_id} --watch{flags}"),
            None => format!("cp examples/quickstart/* {}", quoted(service.dags_folder())),
        };
        Self {
            next: [
                format!("longshore dags list{flags}"),
                start_one,
                format!(
                    "kubectl --kubeconfig {} -n {} get pods --watch",
                    quoted(service.kubeconfig()),
                    service.namespace()
                ),
            ],
            data_dir: text(data_dir),
            kubeconfig: text(service.kubeconfig()),
            kubernetes: service.kubernetes(),
            server: service.server(),
            metrics: service.metrics(),
            dags_folder: text(service.dags_folder()),
            database: config.database.word(),
            n_dags: dags.len(),
            is_ephemeral: args.data_dir.ephemeral,
        }
    }

    /// Prints it to stdout.
    pub(super) fn print(&self, globals: &Globals) {
        match globals.output {
            Format::Json => output::json(&self.object()),
            Format::Yaml => output::yaml(&self.object()),
            Format::Name => output::line(&self.server),
            Format::Table | Format::Wide if globals.quiet => {}
            Format::Table | Format::Wide => output::text(&self.text()),
        }
    }

    /// For a program. Field names are an interface.
    fn object(&self) -> Value {
        json!({
            "kind": "Ready",
            "pid": std::process::id(),
            "dataDir": self.data_dir,
            "kubeconfig": self.kubeconfig,
            "kubernetes": self.kubernetes,
            "server": self.server,
            "metrics": self.metrics,
            "dagsFolder": self.dags_folder,
            "dags": self.n_dags,
            "database": self.database,
            "ephemeral": self.is_ephemeral,
            "next": self.next,
        })
    }

    fn text(&self) -> String {
        let mut text = format!("{GOOD}ready{GOOD:#}");
        if self.is_ephemeral {
            let _ = write!(
                text,
                " {BAD}(--ephemeral: everything is removed at the end){BAD:#}"
            );
        }
        let dags = format!("{} ({})", self.dags_folder, counted(self.n_dags, "DAG"));
        let metrics = format!("{}/metrics", self.metrics);
        text.push_str("\n\n");
        for (name, value) in [
            ("HTTP API", &self.server),
            ("Kubernetes", &self.kubernetes),
            ("kubeconfig", &self.kubeconfig),
            ("metrics", &metrics),
            ("DAG files", &dags),
        ] {
            let _ = writeln!(text, "{name:<11} {value}");
        }
        let _ = writeln!(text, "\n{DIM}next:{DIM:#}");
        for command in &self.next {
            let _ = writeln!(text, "  {command}");
        }
        text
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
