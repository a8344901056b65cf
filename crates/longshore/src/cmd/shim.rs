//! `longshore shim`: the small process above the containers of a pod. The node starts it, and no user does: so it is no
//! command of [`cli`](crate::cli).

use std::{ffi::OsString, process::ExitCode};

/// The word that makes this program a shim.
const NAME: &str = "shim";

/// Becomes the shim, where the arguments say so. One runs for each pod, hence nothing else comes before it: not even the
/// arguments of the other commands are built.
pub(crate) fn run(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    let is_shim = args.next().is_some_and(|command| command == NAME);
    is_shim.then(|| longshore_node::shim::main(args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_argument_makes_a_shim() {
        let run = |args: &[&str]| run(args.iter().map(OsString::from)).is_some();
        assert!(run(&["longshore", "shim", "without the rest it refuses"]));
        assert!(!run(&["longshore", "run", "shim"]));
        assert!(!run(&["longshore"]));
    }
}
