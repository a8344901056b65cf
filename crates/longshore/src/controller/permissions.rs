//! The rights that RBAC does not grant, found before the start: a controller that finds them missing later hangs in its
//! watches, and names one rule at a time.

use futures::future::try_join_all;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};
use longshore_kit::{Grant, Reach};

use super::{Context, leadership::Election, rbac, roles::Role};
use crate::error::{CliError, KubernetesError};

/// Fails with all rules that are missing for the roles that are enabled.
pub(super) async fn check(context: &Context) -> Result<(), CliError> {
    let client = context.cluster.client("start", &context.metrics)?;
    let mut missing = Vec::new();
    for &role in &context.config.roles {
        let has_leases = matches!(context.config.election, Election::ByLease(_));
        let (webhook, others) = (&context.config.settings.webhook, &context.config.others);
        let grants = rbac::needed(role, webhook, others, has_leases);
        let own = context.cluster.namespace();
        let client = &client;
        let asked = grants.iter().flat_map(|grant| {
            let place = if rbac::is_widened(role, webhook, grant) {
                " in all namespaces"
            } else {
                ""
            };
            let questions = questions(grant, own).into_iter();
            questions.map(move |question| async move {
                let missing = ask(client, own, question).await?;
                kube::Result::Ok(missing.map(|words| words + place))
            })
        });
        let answers = try_join_all(asked)
            .await
            .map_err(|error| KubernetesError::of_server(context.cluster.url(), error))?;
        missing.extend(answers.into_iter().flatten());
    }
    if missing.is_empty() {
        return Ok(());
    }
    missing.dedup();
    let roles = &context.config.roles;
    Err(KubernetesError::MissingRules {
        namespace: context.cluster.namespace().to_owned(),
        missing,
        roles: roles.iter().map(|role| role.name).collect(),
        elsewhere: roles.iter().find_map(|role| elsewhere(role, context)),
        others: context.config.others.flags(),
    }
    .into())
}

/// The rights among `questions` that RBAC does not grant, in words.
pub(crate) async fn missing(
    client: &Client,
    own: &str,
    questions: Vec<ResourceAttributes>,
) -> kube::Result<Vec<String>> {
    let asked = questions
        .into_iter()
        .map(|question| ask(client, own, question));
    let mut missing: Vec<String> = try_join_all(asked).await?.into_iter().flatten().collect();
    missing.dedup();
    Ok(missing)
}

/// The namespace beside the controller's own in which a role needs rights.
fn elsewhere(role: &Role, context: &Context) -> Option<String> {
    let grants = (role.grants)(&context.config.settings.webhook);
    grants.into_iter().find_map(|grant| grant.elsewhere)
}

/// Every verb on every resource of a grant.
fn questions(grant: &Grant, namespace: &str) -> Vec<ResourceAttributes> {
    let mut questions = Vec::new();
    let rule = grant.rule;
    let mut names: Vec<&str> = grant.names.iter().map(String::as_str).collect();
    if names.is_empty() {
        names.push("");
    }
    let namespace = grant.elsewhere.as_deref().unwrap_or(namespace);
    for resource in rule.resources {
        let (plural, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        for (verb, name) in rule
            .verbs
            .iter()
            .flat_map(|verb| names.iter().map(move |name| (*verb, *name)))
        {
            let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            questions.push(ResourceAttributes {
                group: Some(rule.group.to_owned()),
                name: some(name),
                namespace: some(match rule.reach {
                    Reach::Namespace => namespace,
                    Reach::Cluster => "",
                }),
                resource: some(plural),
                subresource: some(subresource),
                verb: some(verb),
                ..ResourceAttributes::default()
            });
        }
    }
    questions
}

/// The rule in words, if it is missing.
async fn ask(
    client: &Client,
    own: &str,
    question: ResourceAttributes,
) -> kube::Result<Option<String>> {
    let words = words(&question, own);
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(question),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    match reviews.create(&PostParams::default(), &review).await {
        Ok(answer) => {
            let is_allowed = answer.status.is_some_and(|status| status.allowed);
            Ok((!is_allowed).then_some(words))
        }
        // This API server has no RBAC to ask about, as the embedded one.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `get pods/log`, `get namespaces kube-system`, `get secrets in namespace flyte`.
fn words(question: &ResourceAttributes, own: &str) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut words = format!("{} {}", text(&question.verb), text(&question.resource));
    if let Some(subresource) = &question.subresource {
        words.push('/');
        words.push_str(subresource);
    }
    if let Some(group) = question.group.as_deref().filter(|group| !group.is_empty()) {
        words.push('.');
        words.push_str(group);
    }
    if let Some(name) = &question.name {
        words.push(' ');
        words.push_str(name);
    }
    let elsewhere = question.namespace.as_deref();
    if let Some(namespace) = elsewhere.filter(|namespace| *namespace != own) {
        words.push_str(" in namespace ");
        words.push_str(namespace);
    }
    words
}
