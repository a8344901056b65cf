//! `longshore images`: which images the image map of a running service has, and which ones pods use.

use std::collections::BTreeMap;

use clap::Args;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client, ResourceExt, api::ListParams};
use longshore_api::node::ANNOTATION_NODE_IMAGES;
use longshore_console::objects::List;
use longshore_node::{NodeImages, UnmappedImages, images::images_of};
use serde::Serialize;

use super::{
    actions::ClusterArgs,
    block_on,
    pods::refused,
    print::{self, Detail},
    table::Table,
};
use crate::{
    cli::{Globals, help_end},
    error::{ActionsError, CliError},
    exit::Exit,
    output,
};

/// List the images of `longshore standalone`: mapped, used, missing
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore images"))]
pub(crate) struct ImagesArgs {
    /// Print no header line
    #[arg(long)]
    no_headers: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// An image of pods, or an entry of the image map that no pod uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ImageView {
    /// The image, or the pattern of the entry.
    image: String,
    state: ImageState,
    /// What its containers are: the pattern of the entry, the programs of the machine, or nothing.
    runs: String,
    /// How many pods use it.
    pods: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum ImageState {
    /// Pods use it, and it has no entry.
    Missing,
    /// Pods use it, and it has an entry.
    Used,
    /// It is an entry that no pod uses.
    Mapped,
}

impl ImageState {
    fn word(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Used => "used",
            Self::Mapped => "mapped",
        }
    }
}

/// Prints them, the missing ones first.
pub(crate) fn list(args: &ImagesArgs, globals: &Globals) -> Result<Exit, CliError> {
    let (nodes, pods) = block_on(read(&args.cluster))?;
    let nodes: BTreeMap<String, NodeImages> = nodes.iter().filter_map(published).collect();
    if nodes.is_empty() {
        output::note(
            "no process node of Longshore in this cluster: its nodes pull images from registries",
        );
    }
    let images = List::of(views(&nodes, &pods));
    let table = |_: Detail| {
        let table = table(&images.items);
        if args.no_headers {
            table.without_headers()
        } else {
            table
        }
    };
    print::list(&images, |image| image.image.clone(), table, globals);
    Ok(Exit::Success)
}

/// The nodes, and the pods of all namespaces or of the one that the command line names.
async fn read(args: &ClusterArgs) -> Result<(Vec<Node>, Vec<Pod>), CliError> {
    let config = args.config().await?;
    let client = Client::try_from(config).map_err(|error| ActionsError::NoKubeconfig {
        source: Box::new(error),
    })?;
    let all = ListParams::default();
    let nodes = Api::<Node>::all(client.clone()).list(&all).await;
    let nodes = nodes.map_err(|error| refused("list of nodes failed", &error))?;
    let pods = match args.named_namespace() {
        Some(namespace) => Api::<Pod>::namespaced(client, namespace),
        None => Api::<Pod>::all(client),
    };
    let pods = pods.list(&all).await;
    let pods = pods.map_err(|error| refused("list of pods failed", &error))?;
    Ok((nodes.items, pods.items))
}

/// What a process node says about its images.
fn published(node: &Node) -> Option<(String, NodeImages)> {
    let text = node.annotations().get(ANNOTATION_NODE_IMAGES)?;
    Some((node.name_any(), serde_json::from_str(text).ok()?))
}

/// The images of the pods of these nodes, and the entries that none of them uses.
fn views(nodes: &BTreeMap<String, NodeImages>, pods: &[Pod]) -> Vec<ImageView> {
    let mut used: BTreeMap<(&str, ImageState, &str), usize> = BTreeMap::new();
    for pod in pods {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        let Some(images) = node.and_then(|node| nodes.get(node)) else {
            continue;
        };
        let mut of_pod: Vec<&str> = images_of(pod).collect();
        of_pod.sort_unstable();
        of_pod.dedup();
        for image in of_pod {
            let (state, runs) = match (images.entry_of(image), images.unmapped) {
                (Some(entry), _) => (ImageState::Used, entry),
                (None, UnmappedImages::Run) => (ImageState::Missing, "programs of this machine"),
                (None, UnmappedImages::Refuse) => (ImageState::Missing, "nothing: refused"),
            };
            *used.entry((image, state, runs)).or_insert(0) += 1;
        }
    }
    let is_used = |entry: &String| {
        let mut used = used.keys();
        used.any(|(_, state, runs)| *state == ImageState::Used && runs == entry)
    };
    let entries = nodes.values().flat_map(|images| &images.entries);
    let mut unused: Vec<&String> = entries.filter(|&entry| !is_used(entry)).collect();
    unused.sort_unstable();
    unused.dedup();
    let unused = unused.into_iter().map(|entry| ImageView {
        image: entry.clone(),
        state: ImageState::Mapped,
        runs: entry.clone(),
        pods: 0,
    });
    let of_pods = used.iter().map(|((image, state, runs), pods)| ImageView {
        image: (*image).to_owned(),
        state: *state,
        runs: (*runs).to_owned(),
        pods: *pods,
    });
    let mut views: Vec<ImageView> = of_pods.chain(unused).collect();
    views.sort_by(|a, b| (a.state, &a.image).cmp(&(b.state, &b.image)));
    views
}

fn table(images: &[ImageView]) -> Table {
    let mut table = Table::new(&["IMAGE", "STATE", "RUNS", "PODS"]);
    for image in images {
        table.row([
            image.image.clone(),
            image.state.word().to_owned(),
            image.runs.clone(),
            image.pods.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(node: &str, images: &[&str]) -> Pod {
        let containers = images
            .iter()
            .map(|image| json!({"name": "c", "image": image}));
        let containers: Vec<_> = containers.collect();
        serde_json::from_value(json!({"spec": {"nodeName": node, "containers": containers}}))
            .unwrap()
    }

    fn node(unmapped: &str) -> Node {
        let images = json!({"unmapped": unmapped, "entries": ["app:*", "idle", "*/db:*"]});
        let annotations = json!({ANNOTATION_NODE_IMAGES: images.to_string()});
        serde_json::from_value(json!({"metadata": {"name": "local", "annotations": annotations}}))
            .unwrap()
    }

    #[test]
    fn missing_used_and_mapped_images_are_told_apart() {
        let pods = [
            pod("local", &["app:1", "app:1", "python:3.13"]),
            pod("local", &["app:1", "x/db:2"]),
            pod("another", &["elsewhere"]),
        ];
        for (unmapped, runs) in [
            ("run", "programs of this machine"),
            ("refuse", "nothing: refused"),
        ] {
            let nodes = published(&node(unmapped)).into_iter().collect();
            let found = serde_json::to_value(views(&nodes, &pods)).unwrap();
            let expected = json!([
                {"image": "python:3.13", "state": "missing", "runs": runs, "pods": 1},
                {"image": "app:1", "state": "used", "runs": "app:*", "pods": 2},
                {"image": "x/db:2", "state": "used", "runs": "*/db:*", "pods": 1},
                {"image": "idle", "state": "mapped", "runs": "idle", "pods": 0},
            ]);
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_image() {
        let nodes = published(&node("run")).into_iter().collect();
        let text = table(&views(&nodes, &[pod("local", &["python:3.13"])])).render();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").collect())
            .collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[1].contains(&"python:3.13"), "{text}");
        assert!(text.contains("programs of this machine"), "{text}");
    }
}
