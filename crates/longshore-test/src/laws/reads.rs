//! The reads of an observation: every [`Seen`] in it, found by its type.
//!
//! [`reads!`](crate::reads) takes the fields of an `Observed` apart and does not compile where a field is missing. Which
//! of the fields are reads follows from their types, so that no list can leave one out:
//!
//! ```
//! # use longshore_core::Seen;
//! use longshore_test::laws::all_reads;
//!
//! #[derive(Clone, Debug)]
//! struct Observed {
//!     now: u64,
//!     pod: Seen<String>,
//! }
//!
//! longshore_test::reads! {
//!     Observed { now, pod }
//! }
//!
//! let observed = Observed { now: 7, pod: Seen::Absent };
//! let reads = all_reads(&observed).unwrap();
//! assert_eq!(reads.len(), 1);
//! assert_eq!(reads[0].path, "pod");
//! assert!(reads[0].unknown.pod.is_unknown());
//! ```
//!
//! ```compile_fail
//! # use longshore_core::Seen;
//! # #[derive(Clone, Debug)]
//! # struct Observed { now: u64, pod: Seen<String> }
//! longshore_test::reads! {
//!     Observed { now }
//! }
//! ```

use std::{
    collections::BTreeMap,
    fmt::{Debug, Display},
    sync::Arc,
};

use longshore_core::{Seen, Unknown, UnknownCause};

/// One read of an observation.
#[derive(Clone, Debug, PartialEq)]
pub struct Read<T> {
    /// The path of its field, for example `action.children.current` or `services[web]`.
    pub path: String,
    /// Whether the read succeeded in the observation as it was.
    pub is_known: bool,
    /// The observation if this read had failed.
    pub unknown: T,
    /// The observation if this read had found nothing.
    pub absent: T,
}

impl<T> Read<T> {
    /// The same read, seen from the value that holds this one at `place`.
    #[must_use]
    pub fn within<U>(self, place: impl Display, mut put: impl FnMut(T) -> U) -> Read<U> {
        let mut path = place.to_string();
        if !path.is_empty() && !self.path.is_empty() && !self.path.starts_with('[') {
            path.push('.');
        }
        path.push_str(&self.path);
        Read {
            path,
            is_known: self.is_known,
            unknown: put(self.unknown),
            absent: put(self.absent),
        }
    }
}

/// A value whose reads are known. [`reads!`](crate::reads) implements it for structs.
pub trait Reads: Clone {
    /// One item for each [`Seen`] in the value, those within a [`Seen::Present`] included.
    fn reads(&self) -> Vec<Read<Self>>;
}

/// All reads of an observation.
///
/// # Errors
/// The observation holds a [`Seen`] that was not found, because it is in a type without [`Reads`]. The `Debug` text of
/// the observation shows it.
pub fn all_reads<T: Reads + Debug>(observed: &T) -> Result<Vec<Read<T>>, String> {
    let mut blind = observed.clone();
    while let Some(read) = blind.reads().into_iter().find(|read| read.is_known) {
        blind = read.unknown;
    }
    match overlooked(&format!("{blind:?}")) {
        None => Ok(observed.reads()),
        Some(text) => Err(format!(
            "a read in a type without `Reads`, add the type to `reads!`: {text}"
        )),
    }
}

/// Where a `Debug` text has a [`Seen::Present`] outside of its string literals, with what is around it.
fn overlooked(text: &str) -> Option<String> {
    const AROUND: usize = 60;
    let mut outside = String::with_capacity(text.len());
    let (mut is_literal, mut is_escaped) = (false, false);
    for char in text.chars() {
        if is_literal {
            is_literal = is_escaped || char != '"';
            is_escaped = !is_escaped && char == '\\';
        } else {
            is_literal = char == '"';
            outside.push(char);
        }
    }
    let (before, after) = outside.split_once("Present(")?;
    let skipped = before.chars().count().saturating_sub(AROUND);
    let before: String = before.chars().skip(skipped).collect();
    let after: String = after.chars().take(AROUND).collect();
    Some(format!("{before}Present({after}"))
}

/// The [`Seen`] itself, unknown and absent.
fn itself<T>(seen: &Seen<T>) -> Read<Seen<T>> {
    let why = Unknown::new(UnknownCause::Unreachable, "the read failed");
    Read {
        path: String::new(),
        is_known: !seen.is_unknown(),
        unknown: Seen::Unknown(why),
        absent: Seen::Absent,
    }
}

impl<T: Reads> Reads for Seen<T> {
    fn reads(&self) -> Vec<Read<Self>> {
        let mut reads = vec![itself(self)];
        if let Self::Present(value) = self {
            let within = value.reads().into_iter();
            reads.extend(within.map(|read| read.within("", Seen::Present)));
        }
        reads
    }
}

impl<T: Reads> Reads for Option<T> {
    fn reads(&self) -> Vec<Read<Self>> {
        let within = self.iter().flat_map(T::reads);
        within.map(|read| read.within("", Some)).collect()
    }
}

impl<T: Reads> Reads for Box<T> {
    fn reads(&self) -> Vec<Read<Self>> {
        let within = T::reads(self).into_iter();
        within.map(|read| read.within("", Box::new)).collect()
    }
}

impl<T: Reads> Reads for Arc<T> {
    fn reads(&self) -> Vec<Read<Self>> {
        let within = T::reads(self).into_iter();
        within.map(|read| read.within("", Arc::new)).collect()
    }
}

impl<T: Reads> Reads for Vec<T> {
    fn reads(&self) -> Vec<Read<Self>> {
        each(self, T::reads)
    }
}

impl<K: Clone + Ord + Debug, T: Reads> Reads for BTreeMap<K, T> {
    fn reads(&self) -> Vec<Read<Self>> {
        each_value(self, T::reads)
    }
}

fn each<T: Clone>(values: &[T], of: impl Fn(&T) -> Vec<Read<T>>) -> Vec<Read<Vec<T>>> {
    let mut reads = Vec::new();
    for (n, value) in values.iter().enumerate() {
        reads.extend(of(value).into_iter().map(|read| {
            read.within(format!("[{n}]"), |value| {
                let mut values = values.to_vec();
                if let Some(place) = values.get_mut(n) {
                    *place = value;
                }
                values
            })
        }));
    }
    reads
}

fn each_value<K: Clone + Ord + Debug, T: Clone>(
    values: &BTreeMap<K, T>,
    of: impl Fn(&T) -> Vec<Read<T>>,
) -> Vec<Read<BTreeMap<K, T>>> {
    let mut reads = Vec::new();
    for (key, value) in values {
        reads.extend(of(value).into_iter().map(|read| {
            read.within(format!("[{key:?}]"), |value| {
                let mut values = values.clone();
                values.insert(key.clone(), value);
                values
            })
        }));
    }
    reads
}

/// A field, as [`reads!`](crate::reads) looks at it. Method resolution takes the first of [`OfNested`], [`OfSeen`] and
/// [`OfPlain`] that the type of the field allows.
#[derive(Debug)]
pub struct Field<'f, T>(pub &'f T);

/// Fields whose type has [`Reads`].
pub trait OfNested<T> {
    /// Its reads.
    fn found(&self) -> Vec<Read<T>>;
}

impl<T: Reads> OfNested<T> for &&Field<'_, T> {
    fn found(&self) -> Vec<Read<T>> {
        self.0.reads()
    }
}

/// Fields that are a [`Seen`] of anything, or several of them.
pub trait OfSeen<T> {
    /// Its reads.
    fn found(&self) -> Vec<Read<T>>;
}

impl<T: Clone> OfSeen<Seen<T>> for &Field<'_, Seen<T>> {
    fn found(&self) -> Vec<Read<Seen<T>>> {
        vec![itself(self.0)]
    }
}

impl<T: Clone> OfSeen<Option<Seen<T>>> for &Field<'_, Option<Seen<T>>> {
    fn found(&self) -> Vec<Read<Option<Seen<T>>>> {
        let within = self.0.iter().map(itself);
        within.map(|read| read.within("", Some)).collect()
    }
}

impl<T: Clone> OfSeen<Vec<Seen<T>>> for &Field<'_, Vec<Seen<T>>> {
    fn found(&self) -> Vec<Read<Vec<Seen<T>>>> {
        each(self.0, |seen| vec![itself(seen)])
    }
}

impl<K: Clone + Ord + Debug, T: Clone> OfSeen<BTreeMap<K, Seen<T>>>
    for &Field<'_, BTreeMap<K, Seen<T>>>
{
    fn found(&self) -> Vec<Read<BTreeMap<K, Seen<T>>>> {
        each_value(self.0, |seen| vec![itself(seen)])
    }
}

/// All other fields.
pub trait OfPlain<T> {
    /// None: [`all_reads`] finds a [`Seen`] in them all the same.
    fn found(&self) -> Vec<Read<T>>;
}

impl<T> OfPlain<T> for Field<'_, T> {
    fn found(&self) -> Vec<Read<T>> {
        Vec::new()
    }
}

/// Finds the reads of structs, and of enums whose variants hold one value or none:
/// `reads! { Observed { now, work } enum Work { Task(task), Nothing } }`.
///
/// Implements [`Reads`](crate::laws::Reads) for each of them. All fields and variants have to be named, else it does not
/// compile.
#[macro_export]
macro_rules! reads {
    () => {};
    (enum $observed:ident { $($variant:ident $(($value:ident))?),* $(,)? } $($rest:tt)*) => {
        impl $crate::laws::Reads for $observed {
            fn reads(&self) -> Vec<$crate::laws::Read<Self>> {
                #[allow(unused_imports, reason = "which of them is needed depends on the variants")]
                use $crate::laws::reads::{OfNested as _, OfPlain as _, OfSeen as _};

                let mut reads = Vec::new();
                match self {
                    $(
                        Self::$variant $(($value))? => {
                            $(
                                for read in (&&&$crate::laws::reads::Field($value)).found() {
                                    reads.push(read.within("", Self::$variant));
                                }
                            )?
                        }
                    )*
                }
                reads
            }
        }
        $crate::reads! { $($rest)* }
    };
    ($observed:ty { $($field:ident),* $(,)? } $($rest:tt)*) => {
        impl $crate::laws::Reads for $observed {
            fn reads(&self) -> Vec<$crate::laws::Read<Self>> {
                #[allow(unused_imports, reason = "which of them is needed depends on the fields")]
                use $crate::laws::reads::{OfNested as _, OfPlain as _, OfSeen as _};

                let Self { $($field),* } = self;
                let mut reads = Vec::new();
                $(
                    for read in (&&&$crate::laws::reads::Field($field)).found() {
                        reads.push(read.within(stringify!($field), |value| {
                            let mut observed = self.clone();
                            observed.$field = value;
                            observed
                        }));
                    }
                )*
                reads
            }
        }
        $crate::reads! { $($rest)* }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Outer {
        now: u32,
        action: Seen<Inner>,
        plain: Seen<String>,
        by_name: BTreeMap<String, Seen<u32>>,
        several: Vec<Seen<u32>>,
        nested: Vec<Inner>,
        work: Work,
    }

    #[derive(Clone, Debug, PartialEq)]
    enum Work {
        Some(Box<Inner>),
        Invalid(u32),
        Nothing,
    }

    #[derive(Clone, Debug, PartialEq)]
    struct Inner {
        name: String,
        child: Seen<u32>,
    }

    #[derive(Clone, Debug)]
    struct Careless {
        hidden: Hidden,
    }

    /// A type whose reads no `reads!` declares.
    #[derive(Clone, Debug)]
    struct Hidden(Seen<u32>);

    crate::reads! {
        Outer { now, action, plain, by_name, several, nested, work }
        enum Work { Some(inner), Invalid(code), Nothing }
        Inner { name, child }
        Careless { hidden }
    }

    fn outer() -> Outer {
        let inner = |n| Inner {
            name: "Present(in a text) \" Present(".to_owned(),
            child: Seen::Present(n),
        };
        Outer {
            now: 7,
            action: Seen::Present(inner(1)),
            plain: Seen::Absent,
            by_name: BTreeMap::from([("a".to_owned(), Seen::Present(2))]),
            several: vec![Seen::Present(3), Seen::Absent],
            nested: vec![inner(4)],
            work: Work::Some(Box::new(inner(5))),
        }
    }

    #[test]
    fn every_read_is_found_by_its_type_wherever_it_is() {
        let observed = outer();
        let reads = all_reads(&observed).unwrap();
        let paths: Vec<&str> = reads.iter().map(|read| read.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "action",
                "action.child",
                "plain",
                "by_name[\"a\"]",
                "several[0]",
                "several[1]",
                "nested[0].child",
                "work.child",
            ]
        );
        let of = |path: &str| reads.iter().find(|read| read.path == path).unwrap();
        let child = of("action.child");
        let blind = child.unknown.action.present().unwrap();
        assert!(blind.child.is_unknown());
        assert!(child.absent.action.present().unwrap().child.is_absent());
        assert_eq!(child.unknown.nested, observed.nested);
        assert!(of("several[1]").unknown.several[1].is_unknown());
        assert!(of("by_name[\"a\"]").absent.by_name["a"].is_absent());
        assert!(of("nested[0].child").unknown.nested[0].child.is_unknown());
    }

    #[test]
    fn a_read_that_is_not_there_has_no_reads_within() {
        let observed = Outer {
            action: Seen::Absent,
            nested: Vec::new(),
            work: Work::Nothing,
            ..outer()
        };
        let reads = all_reads(&observed).unwrap();
        assert!(reads.iter().all(|read| !read.path.contains("child")));
        assert_eq!(Work::Invalid(7).reads(), []);
    }

    #[test]
    fn a_read_in_a_type_that_says_nothing_is_told() {
        let careless = |seen| Careless {
            hidden: Hidden(seen),
        };
        let why = all_reads(&careless(Seen::Present(1))).unwrap_err();
        assert!(why.contains("Hidden(Present("), "{why}");
        assert_eq!(careless(Seen::Absent).hidden.0, Seen::Absent);
    }
}
