//! What a task's outputs are cached under (task action spec §7.1), to the byte as upstream makes it: two executors share
//! one cache.

mod object_hash;

use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use longshore_proto::{
    JsonError,
    flyteidl2::core::{
        Identifier, Literal, LiteralCollection, LiteralMap, TaskTemplate, VariableMap, literal,
    },
    to_json,
};
use prost::{Message, Name};

use object_hash::Hash;

/// How much of a signature's hash is in a key, in characters.
const SIGNATURE_LENGTH: usize = 8;

/// What a task's outputs are cached under.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheKey {
    /// The organisation, of the template's id.
    pub org: String,
    /// The project, of the template's id.
    pub project: String,
    /// The domain, of the template's id.
    pub domain: String,
    /// Hashes of the task's id, signature and inputs, and the cache version.
    pub key: String,
}

/// Why a task's outputs cannot be cached.
#[derive(Debug, thiserror::Error)]
pub enum CacheKeyError {
    /// The template has no id.
    #[error("the task template has no id, and a cached task needs one")]
    NoId,
    /// The template has no interface.
    #[error("the task template has no interface, and a cached task needs one")]
    NoInterface,
    /// A message has no JSON form.
    #[error("what a cached task is made of cannot be hashed")]
    NoJson(#[from] JsonError),
}

impl CacheKey {
    /// The key of a task with these inputs; `version` is `spec.cacheKey`.
    ///
    /// Inputs are left out where the template declares none, and missing ones are no inputs.
    ///
    /// # Errors
    /// Where the template lacks what a key is made of, or a value has no JSON form.
    pub fn of(
        template: &TaskTemplate,
        inputs: Option<&LiteralMap>,
        version: &str,
    ) -> Result<Self, CacheKeyError> {
        let id = template.id.as_ref().ok_or(CacheKeyError::NoId)?;
        let interface = template.interface.as_ref();
        let interface = interface.ok_or(CacheKeyError::NoInterface)?;
        let metadata = template.metadata.as_ref();
        let ignored = metadata.map_or(&[][..], |metadata| &metadata.cache_ignore_input_vars);
        let inputs = inputs.filter(|_| interface.inputs.is_some());
        let parts = [
            id_part(id)?,
            signature_part(interface.inputs.as_ref())?,
            signature_part(interface.outputs.as_ref())?,
            inputs_part(inputs, ignored)?,
            version.to_owned(),
        ];
        Ok(Self {
            org: id.org.clone(),
            project: id.project.clone(),
            domain: id.domain.clone(),
            key: parts.join("-"),
        })
    }

    /// Whether a task's outputs are cached at all.
    pub fn is_wanted(template: &TaskTemplate) -> bool {
        let metadata = template.metadata.as_ref();
        metadata.is_some_and(|metadata| metadata.discoverable)
    }
}

/// The task, whatever its version.
fn id_part(id: &Identifier) -> Result<String, CacheKeyError> {
    let id = Identifier {
        version: String::new(),
        ..id.clone()
    };
    Ok(BASE64_STANDARD.encode(hash(&id)?))
}

/// The names and types of inputs or of outputs.
fn signature_part(variables: Option<&VariableMap>) -> Result<String, CacheKeyError> {
    let empty = VariableMap::default();
    let hash = hash(variables.unwrap_or(&empty))?;
    let mut part = BASE64_URL_SAFE_NO_PAD.encode(hash);
    part.truncate(SIGNATURE_LENGTH);
    Ok(part)
}

/// The values of inputs.
fn inputs_part(inputs: Option<&LiteralMap>, ignored: &[String]) -> Result<String, CacheKeyError> {
    let literals = inputs.into_iter().flat_map(|inputs| &inputs.literals);
    let counted = literals.filter(|(name, _)| !ignored.contains(name));
    let literals = LiteralMap {
        literals: counted.map(|(k, v)| (k.clone(), by_hash(v))).collect(),
    };
    Ok(BASE64_URL_SAFE_NO_PAD.encode(hash(&literals)?))
}

/// A literal that says its hash is nothing but that hash; so are the literals in it.
fn by_hash(literal: &Literal) -> Literal {
    if !literal.hash.is_empty() {
        return Literal {
            hash: literal.hash.clone(),
            ..Literal::default()
        };
    }
    let value = match &literal.value {
        Some(literal::Value::Collection(collection)) => {
            let literals = collection.literals.iter().map(by_hash).collect();
            literal::Value::Collection(LiteralCollection { literals })
        }
        Some(literal::Value::Map(map)) => {
            let literals = map.literals.iter().map(|(k, v)| (k.clone(), by_hash(v)));
            literal::Value::Map(LiteralMap {
                literals: literals.collect(),
            })
        }
        Some(literal::Value::Scalar(_) | literal::Value::OffloadedMetadata(_)) | None => {
            return literal.clone();
        }
    };
    // What else was said about a collection is not part of the key.
    Literal {
        value: Some(value),
        ..Literal::default()
    }
}

/// The hash of a message's JSON form.
fn hash<M: Message + Name>(message: &M) -> Result<Hash, CacheKeyError> {
    Ok(object_hash::of(&to_json(message)?))
}

#[cfg(test)]
mod tests;
