//! Templates in commands and arguments: `{{ .outputPrefix }}` (task action spec §11.3).

use longshore_proto::flyteidl2::core::LiteralMap;

use super::literal;
use crate::{context::TaskContext, plugin::BuildError, text_template::replace};

/// What upstream calls the template of a task that is stored in the TaskAction itself.
const TASK_TEMPLATE_PATH: &str = "inline://taskTemplate";
/// What the templates of single inputs begin with.
const INPUTS: &str = "inputs.";

/// Values of templates, computed once for all texts of a pod.
#[derive(Clone, Debug)]
pub(crate) struct Values<'a> {
    /// By lower-case name, in the order in which they are put in: a value may hold a later template.
    paths: [(&'static str, String); 9],
    inputs: Result<Option<&'a LiteralMap>, &'a String>,
    /// Where the inputs are.
    url: &'a str,
}

impl<'a> Values<'a> {
    /// The values of an attempt.
    pub(crate) fn of(context: &'a TaskContext) -> Self {
        let paths = &context.paths;
        // The SDK wants an argument to be there: two quotes, as from a shell.
        let previous = match paths.previous_checkpoint.as_str() {
            "" => "\"\"",
            path => path,
        };
        let paths = [
            ("input", paths.input.as_str()),
            ("outputprefix", &paths.output_prefix),
            ("inputprefix", &paths.input_prefix),
            ("rawoutputdataprefix", &paths.raw_output_prefix),
            ("prevcheckpointprefix", previous),
            ("checkpointoutputprefix", &paths.checkpoint),
            ("perretryuniquekey", &unique_key(&context.generated_name)),
            ("tasktemplatepath", TASK_TEMPLATE_PATH),
            ("namespace", &context.namespace),
        ]
        .map(|(name, value)| (name, value.to_owned()));
        Self {
            paths,
            inputs: context.inputs.as_ref().map(Option::as_ref),
            url: &context.paths.input,
        }
    }

    /// The text with its templates filled in. Unknown templates stay as they are.
    pub(crate) fn render(&self, text: &str) -> Result<String, BuildError> {
        let mut text = text.to_owned();
        for (known, value) in &self.paths {
            text = replace(&text, |name| {
                Ok(name.eq_ignore_ascii_case(known).then(|| value.clone()))
            })?;
        }
        replace(&text, |name| self.input(name))
    }

    fn input(&self, name: &str) -> Result<Option<String>, BuildError> {
        let Some(variable) = input_variable(name) else {
            return Ok(None);
        };
        let needs = |why: &str| {
            let message = format!("`{{{{.{name}}}}}` needs the task's inputs: {why}");
            Err(BuildError::bad_specification(message))
        };
        let inputs = match self.inputs {
            Ok(Some(inputs)) => inputs,
            Ok(None) => return needs(&format!("there is no {}", self.url)),
            Err(why) => return needs(why),
        };
        // As upstream: a task without any inputs keeps its templates.
        if inputs.literals.is_empty() {
            return Ok(None);
        }
        let literal = inputs.literals.get(variable).ok_or_else(|| {
            let found: Vec<&String> = inputs.literals.keys().collect();
            BuildError::bad_specification(format!(
                "`{{{{.{name}}}}}` asks for an input that the task does not have; it has {found:?}"
            ))
        })?;
        literal::to_text(literal).map(Some).map_err(|problem| {
            BuildError::bad_specification(format!(
                "`{{{{.{name}}}}}` cannot be put into a text: {problem}"
            ))
        })
    }
}

/// Whether a text has templates that need the task's inputs.
pub(crate) fn needs_inputs(text: &str) -> bool {
    let mut needs = false;
    // Nothing is replaced, so nothing fails.
    drop(replace(text, |name| {
        needs |= input_variable(name).is_some();
        Ok::<_, BuildError>(None)
    }));
    needs
}

fn input_variable(name: &str) -> Option<&str> {
    let (prefix, variable) = name.split_at_checked(INPUTS.len())?;
    (prefix.eq_ignore_ascii_case(INPUTS) && !variable.is_empty()).then_some(variable)
}

/// A name for things that each attempt makes anew: letters, digits and underscores, a letter first.
fn unique_key(generated_name: &str) -> String {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
    let start = generated_name
        .find(is_start)
        .unwrap_or(generated_name.len());
    let mut key = String::with_capacity(generated_name.len());
    if start > 0 {
        key.push('a');
    }
    let mut was_allowed = true;
    for c in generated_name[start..].chars() {
        let is_allowed = c.is_ascii_alphanumeric() || c == '_';
        if is_allowed {
            key.push(c);
        } else if was_allowed {
            key.push('_');
        }
        was_allowed = is_allowed;
    }
    key
}

#[cfg(test)]
mod tests {
    use longshore_proto::flyteidl2::core::{
        Literal, Primitive, Scalar, TaskTemplate, literal, primitive, scalar,
    };

    use super::*;
    use crate::fixtures::context;

    fn check(context: &TaskContext, text: &str, expected: &str) {
        let rendered = Values::of(context).render(text).unwrap();
        assert_eq!(rendered, expected, "of {text}");
    }

    #[test]
    fn templates_are_filled_in_whatever_their_case_and_spaces() {
        let context = context(TaskTemplate::default(), 2);
        let out = &context.paths.output_prefix;
        for (text, expected) in [
            ("{{.input}}", "s3://b/in/inputs.pb"),
            ("{{ .INPUT }}", "s3://b/in/inputs.pb"),
            ("{{$Input}}", "s3://b/in/inputs.pb"),
            ("{{.inputPrefix}}/x", "s3://b/in/x"),
            ("{{.outputPrefix}}", out),
            ("{{.rawOutputDataPrefix}}", out),
            (
                "{{.checkpointOutputPrefix}}",
                &format!("{out}/_flytecheckpoints"),
            ),
            (
                "{{.prevCheckpointPrefix}}",
                &context.paths.previous_checkpoint,
            ),
            ("{{.perRetryUniqueKey}}", "r_a_1"),
            ("{{.taskTemplatePath}}", "inline://taskTemplate"),
            ("a{{.namespace}}b{{.namespace}}", "aflytebflyte"),
            ("{{{.namespace}}}", "{flyte}"),
        ] {
            check(&context, text, expected);
        }
    }

    #[test]
    fn what_nobody_knows_stays() {
        let context = context(TaskTemplate::default(), 1);
        for text in [
            "{{.runName}}",
            "{{.actionName}}",
            "{{ .inputs }}",
            "{{input}}",
            "{{.input}",
            "{{.in put}}",
            "{{",
            "}}",
            "",
            "{{.é}}",
        ] {
            check(&context, text, text);
        }
        check(&context, "{{.prevCheckpointPrefix}}", "\"\"");
    }

    #[test]
    fn a_value_may_hold_a_later_template() {
        let mut context = context(TaskTemplate::default(), 1);
        context.paths.output_prefix = "s3://b/{{.namespace}}".to_owned();
        check(&context, "{{.outputPrefix}}", "s3://b/flyte");
    }

    #[test]
    fn unique_keys_are_names() {
        for (name, key) in [("r-a.b-1", "r_a_b_1"), ("12ab--c", "aab_c"), ("7", "a")] {
            assert_eq!(unique_key(name), key);
        }
    }

    #[test]
    fn single_inputs_are_put_in_where_the_inputs_are_known() {
        let mut context = context(TaskTemplate::default(), 1);
        let text = "-n={{ .Inputs.n }}";
        assert!(needs_inputs(text));
        assert!(!needs_inputs("{{.input}} {{.inputs}} {{.inputs.}}"));
        let render = |context: &TaskContext| Values::of(context).render(text);
        let error = render(&context).unwrap_err();
        assert_eq!(error.code, "BadTaskSpecification");
        let url = &context.paths.input;
        let expected = format!("`{{{{.Inputs.n}}}}` needs the task's inputs: there is no {url}");
        assert_eq!(error.message, expected);
        context.inputs = Err("they are garbage".to_owned());
        let error = render(&context).unwrap_err();
        let expected = "`{{.Inputs.n}}` needs the task's inputs: they are garbage";
        assert_eq!(error.message, expected);

        let mut inputs = LiteralMap::default();
        context.inputs = Ok(Some(inputs.clone()));
        assert_eq!(render(&context).unwrap(), text);

        let primitive = Primitive {
            value: Some(primitive::Value::Integer(7)),
        };
        let scalar = Scalar {
            value: Some(scalar::Value::Primitive(primitive)),
        };
        let seven = Literal {
            value: Some(literal::Value::Scalar(Box::new(scalar))),
            ..Literal::default()
        };
        inputs.literals.insert("N".to_owned(), seven.clone());
        context.inputs = Ok(Some(inputs.clone()));
        let error = render(&context).unwrap_err();
        assert!(error.message.contains("it has [\"N\"]"), "{error}");

        inputs.literals.insert("n".to_owned(), seven);
        context.inputs = Ok(Some(inputs));
        assert_eq!(render(&context).unwrap(), "-n=7");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic_and_texts_without_braces_stay(
            text in r"(\{|\}|\.|\$|input|INPUTS|namespace| |é|\PC){0,30}",
        ) {
            let context = context(TaskTemplate::default(), 1);
            let rendered = Values::of(&context).render(&text);
            if !text.contains("{{") {
                proptest::prop_assert_eq!(rendered.unwrap(), text);
            }
        }
    }
}
