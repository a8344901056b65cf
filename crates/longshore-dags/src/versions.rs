//! Which version of a DAG the parser saw. Pure.

use jiff::Timestamp;
use longshore_airflow::serialized::Document;
use longshore_store::{BundleVersion, DagVersion, DocumentHash, StoredDocument};

use crate::scheduler::identity::version_id;

/// What a DAG says, for comparing and storing it. Made where the document is read, beside the scheduler's rounds: it
/// costs as much as the document has bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// The DAG.
    pub dag_id: String,
    /// The hash of what it says.
    pub hash: String,
    /// What is stored.
    pub document: StoredDocument,
}

impl Content {
    /// What this document says.
    pub fn of(document: &Document) -> Self {
        Self {
            dag_id: document.dag.dag_id.clone(),
            hash: document.hash().to_string(),
            document: StoredDocument::of(&document.to_json()),
        }
    }
}

/// A DAG as the parser saw it.
#[derive(Clone, Copy, Debug)]
pub struct Parsed<'a> {
    /// What it says.
    pub content: &'a Content,
    /// The text of its file, where it was read.
    pub source: Option<&'a DocumentHash>,
    /// The bundle of its file, and the version of the bundle.
    pub bundle: Option<&'a BundleVersion>,
    /// Its file, relative to the bundle.
    pub file: &'a str,
    /// When it was parsed.
    pub at: Timestamp,
}

/// What becomes of a DAG that was parsed.
#[derive(Clone, Debug, PartialEq)]
pub enum SeenVersion {
    /// It is the latest version, word by word.
    Same,
    /// It says what the latest version says, in another text or at another place: this is what the row becomes.
    Moved(DagVersion),
    /// It says something else: another version, whose document is that of its content.
    New(DagVersion),
}

/// What becomes of a DAG whose latest version is `latest`. The order of keys, of tasks and of lists of texts makes no
/// version, and neither does the folder of the file; see `Document::hash`. A DAG that says again what an earlier version
/// said, and not the latest one, gets a version of its own, as upstream.
pub fn seen(latest: Option<&DagVersion>, parsed: &Parsed<'_>) -> SeenVersion {
    let content = parsed.content;
    match latest {
        Some(latest) if latest.content_hash == content.hash => {
            let source = parsed.source.or(latest.source.as_ref());
            let moved = DagVersion {
                source: source.cloned(),
                bundle: parsed.bundle.cloned(),
                file: parsed.file.to_owned(),
                ..latest.clone()
            };
            if moved == *latest {
                SeenVersion::Same
            } else {
                SeenVersion::Moved(moved)
            }
        }
        Some(_) | None => {
            let number = latest.map_or(1, |latest| latest.number + 1);
            SeenVersion::New(DagVersion {
                id: version_id(parsed.at, &content.dag_id, number),
                dag_id: content.dag_id.clone(),
                number,
                content_hash: content.hash.clone(),
                document: content.document.hash().clone(),
                source: parsed.source.cloned(),
                bundle: parsed.bundle.cloned(),
                file: parsed.file.to_owned(),
                created_at: parsed.at,
                version: 0,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp::UNIX_EPOCH;

    /// Two tasks, and the members of every object in the order given, or in the opposite one.
    fn text(first: &str, second: &str, is_turned: bool, retries: u32) -> String {
        let task = |id: &str, more: &str| {
            let id = format!("\"task_id\":\"{id}\"");
            let rest = format!("\"task_type\":\"EmptyOperator\",\"_task_module\":\"m\"{more}");
            let var = if is_turned {
                format!("{rest},{id}")
            } else {
                format!("{id},{rest}")
            };
            format!("{{\"__type\":\"operator\",\"__var\":{{{var}}}}}")
        };
        let tasks = format!(
            "\"tasks\":[{},{}]",
            task(first, &format!(",\"retries\":{retries}")),
            task(second, &format!(",\"retries\":{retries}"))
        );
        let rest = "\"dag_id\":\"sales\",\"fileloc\":\"/dags/sales.py\",\
                    \"timetable\":{\"__type\":\"airflow.timetables.simple.NullTimetable\",\"__var\":{}},\
                    \"task_group\":{\"_group_id\":null,\"prefix_group_id\":true,\"tooltip\":\"\",\
                    \"ui_color\":\"\",\"ui_fgcolor\":\"\",\"children\":{},\"upstream_group_ids\":[],\
                    \"downstream_group_ids\":[],\"upstream_task_ids\":[],\"downstream_task_ids\":[],\
                    \"group_display_name\":\"\"}";
        if is_turned {
            format!("{{\"dag\":{{{tasks},{rest}}},\"__version\":3}}")
        } else {
            format!("{{\"__version\":3,\"dag\":{{{rest},{tasks}}}}}")
        }
    }

    fn document(text: &str) -> Document {
        let value = serde_json::from_str(text).unwrap();
        Document::read(value).unwrap_or_else(|why| panic!("{why}: {text}"))
    }

    fn parsed(content: &Content) -> Parsed<'_> {
        Parsed {
            content,
            source: None,
            bundle: None,
            file: "sales.py",
            at: AT,
        }
    }

    fn new(latest: Option<&DagVersion>, document: &Document) -> DagVersion {
        let content = Content::of(document);
        match seen(latest, &parsed(&content)) {
            SeenVersion::New(version) => {
                assert_eq!(version.document, *content.document.hash());
                let read = serde_json::from_str(content.document.body()).unwrap();
                assert_eq!(Document::read(read).unwrap(), *document);
                version
            }
            other @ (SeenVersion::Same | SeenVersion::Moved(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_same_dag_parsed_again_is_the_same_version_whatever_the_order_of_its_keys() {
        let first = new(None, &document(&text("a", "b", false, 0)));
        assert_eq!((first.dag_id.as_str(), first.number), ("sales", 1));
        for again in [text("a", "b", false, 0), text("b", "a", true, 0)] {
            let content = Content::of(&document(&again));
            let seen = seen(Some(&first), &parsed(&content));
            assert_eq!(seen, SeenVersion::Same, "{again}");
        }
        let changed = document(&text("a", "b", false, 1));
        let second = new(Some(&first), &changed);
        assert_eq!((second.number, second.version), (2, 0));
        assert_ne!(second.id, first.id);
        assert_eq!(new(Some(&first), &changed), second);
        // Back to what it said before: that was not the latest version.
        let third = new(Some(&second), &document(&text("a", "b", false, 0)));
        assert_eq!(third.number, 3);
        assert_eq!(third.content_hash, first.content_hash);
    }

    #[test]
    fn another_text_or_place_is_no_version_but_is_noted() {
        let document = document(&text("a", "b", false, 0));
        let latest = DagVersion {
            version: 4,
            ..new(None, &document)
        };
        let source = StoredDocument::of_source("# a comment");
        let bundle = BundleVersion {
            name: "git".to_owned(),
            version: Some("4f2a".to_owned()),
        };
        let content = Content::of(&document);
        let elsewhere = Parsed {
            source: Some(source.hash()),
            bundle: Some(&bundle),
            file: "moved.py",
            ..parsed(&content)
        };
        let expected = DagVersion {
            source: Some(source.hash().clone()),
            bundle: Some(bundle.clone()),
            file: "moved.py".to_owned(),
            ..latest.clone()
        };
        let moved = seen(Some(&latest), &elsewhere);
        assert_eq!(moved, SeenVersion::Moved(expected.clone()));
        // A source that was not read says nothing.
        let unread = Parsed {
            source: None,
            ..elsewhere
        };
        assert_eq!(seen(Some(&expected), &unread), SeenVersion::Same);
    }
}
