//! The Flyte 2 executor: `TaskAction` resources (`flyte.org/v1`), run through plugins.
