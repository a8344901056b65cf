//! What to run, and with what: nothing of our own environment is inherited.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fmt,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use serde_json::{Value as Json, json};

/// A program of Python, its arguments, environment and working directory.
#[derive(Clone, PartialEq, Eq)]
pub struct Launch {
    /// What the interpreter runs.
    pub program: Program,
    /// `sys.argv[1:]`.
    pub args: Vec<OsString>,
    /// The whole environment.
    pub env: BTreeMap<OsString, OsString>,
    /// The working directory.
    pub cwd: PathBuf,
}

/// What an interpreter runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// `python -c TEXT`
    Code(String),
    /// `python -m NAME`
    Module(String),
    /// `python PATH`
    Script(PathBuf),
}

/// The first three descriptors of a child.
#[derive(Debug)]
pub struct Descriptors {
    /// Descriptor 0.
    pub stdin: OwnedFd,
    /// Descriptor 1.
    pub stdout: OwnedFd,
    /// Descriptor 2.
    pub stderr: OwnedFd,
}

/// Without the arguments and the values of the environment, which may be secrets.
impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("program", &self.program)
            .field("n_args", &self.args.len())
            .field("env", &self.env.keys())
            .field("cwd", &self.cwd)
            .finish()
    }
}

impl Launch {
    /// The request to a keeper that executes `interpreter`.
    pub(crate) fn to_exec(&self, interpreter: &Path) -> Json {
        let mut argv = vec![interpreter.as_os_str()];
        match &self.program {
            Program::Code(text) => argv.extend([OsStr::new("-c"), OsStr::new(text)]),
            Program::Module(name) => argv.extend([OsStr::new("-m"), OsStr::new(name)]),
            Program::Script(path) => argv.push(path.as_os_str()),
        }
        argv.extend(self.args.iter().map(OsString::as_os_str));
        let mut request = self.to_surroundings();
        request["argv"] = argv.into_iter().map(latin1).collect();
        request
    }

    /// The request to a keeper that was forked from an interpreter.
    pub(crate) fn to_fork(&self) -> Json {
        let (kind, text) = match &self.program {
            Program::Code(text) => ("code", OsStr::new(text)),
            Program::Module(name) => ("module", OsStr::new(name)),
            Program::Script(path) => ("script", path.as_os_str()),
        };
        let mut request = self.to_surroundings();
        request["program"] = json!({"kind": kind, "text": latin1(text)});
        request["args"] = self.args.iter().map(|arg| latin1(arg)).collect();
        request
    }

    fn to_surroundings(&self) -> Json {
        let env: Json = self
            .env
            .iter()
            .map(|(key, value)| json!([latin1(key), latin1(value)]))
            .collect();
        json!({"env": env, "cwd": latin1(self.cwd.as_os_str())})
    }
}

/// A text of the system as JSON: one character for each byte, whatever its encoding.
fn latin1(text: &OsStr) -> String {
    text.as_bytes()
        .iter()
        .map(|byte| char::from(*byte))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_in_the_debug_form() {
        let launch = Launch {
            program: Program::Module("m".into()),
            args: vec!["hidden-1".into()],
            env: BTreeMap::from([("KEY".into(), "hidden-2".into())]),
            cwd: PathBuf::from("/"),
        };
        let text = format!("{launch:?}");
        assert!(!text.contains("hidden") && text.contains("KEY"), "{text}");
    }

    #[test]
    fn texts_of_the_system_keep_every_byte() {
        let launch = Launch {
            program: Program::Script(PathBuf::from(OsStr::from_bytes(b"/a\xff.py"))),
            args: vec!["ü".into()],
            env: BTreeMap::from([("K".into(), OsStr::from_bytes(b"\x80").to_owned())]),
            cwd: PathBuf::from("/"),
        };
        assert_eq!(
            launch.to_exec(Path::new("/bin/py")),
            json!({
                "argv": ["/bin/py", "/a\u{ff}.py", "\u{c3}\u{bc}"],
                "env": [["K", "\u{80}"]],
                "cwd": "/",
            })
        );
        assert_eq!(
            launch.to_fork()["program"],
            json!({"kind": "script", "text": "/a\u{ff}.py"})
        );
    }
}
