//! The form of a status: an object has a limit of size, and what is written in full may be beyond it.

/// The form in which a status is written, as far as this process knows what the API server takes. What is left out of a
/// short one is the subsystem's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusForm {
    /// As it is.
    #[default]
    Full,
    /// A status was refused as too large: it is short from then on.
    Short,
    /// A short status was refused as well. Each further one is short, and is tried.
    Unwritable,
}

impl StatusForm {
    /// The form of the next status after one was refused as too large.
    #[must_use]
    pub const fn after_refusal(self) -> Self {
        match self {
            Self::Full => Self::Short,
            Self::Short | Self::Unwritable => Self::Unwritable,
        }
    }

    /// The form of the next status after one was written.
    #[must_use]
    pub const fn after_write(self) -> Self {
        match self {
            Self::Full => Self::Full,
            Self::Short | Self::Unwritable => Self::Short,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_leads_to_the_next_form() {
        let refused = StatusForm::Full.after_refusal();
        assert_eq!(refused, StatusForm::Short);
        assert_eq!(refused.after_write(), StatusForm::Short);
        assert_eq!(refused.after_refusal(), StatusForm::Unwritable);
        // What is not ours in the object has become smaller.
        assert_eq!(StatusForm::Unwritable.after_write(), StatusForm::Short);
        assert_eq!(StatusForm::Full.after_write(), StatusForm::Full);
        assert_eq!(
            StatusForm::Unwritable.after_refusal(),
            StatusForm::Unwritable
        );
    }
}
