//! What a command waits for while it starts: a line that moves on a terminal, a line each elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{cli::Globals, output, progress::REDRAWS_PER_SECOND};

/// The phases of a start, as a user sees them on stderr.
#[derive(Debug)]
pub(crate) struct Phases {
    form: Form,
}

#[derive(Debug)]
enum Form {
    Silent,
    Lines,
    Live(ProgressBar),
}

impl Phases {
    /// Prints nothing.
    pub(crate) fn silent() -> Self {
        Self { form: Form::Silent }
    }

    /// Selects the form by the flags, and by whether stderr is a terminal.
    pub(crate) fn choose(globals: &Globals) -> Self {
        let form = if globals.quiet {
            Form::Silent
        } else if output::stderr_is_terminal() {
            Form::Live(spinner())
        } else {
            Form::Lines
        };
        Self { form }
    }

    /// The next phase begins; what is waited for from now on.
    pub(crate) fn wait_for(&self, what: &str) {
        tracing::info!(what, "waiting");
        match &self.form {
            Form::Silent => {}
            Form::Lines => output::note(&format!("waiting for {what}")),
            Form::Live(bar) => bar.set_message(format!("waiting for {what}")),
        }
    }
}

impl Drop for Phases {
    fn drop(&mut self) {
        if let Form::Live(bar) = &self.form {
            bar.finish_and_clear();
        }
    }
}

fn spinner() -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND);
    let bar = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(std::time::Duration::from_millis(100));
    bar
}
