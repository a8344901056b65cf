//! What one set of rules lacks of another one. Pure.
//!
//! A rule stands for all combinations of its verbs, groups, resources and names, which may be more than a server can look
//! at: a body of 3 MiB has room for 10^15 of them. So a rule is compared as a block of sets, and what a held rule covers is
//! cut off the block, which leaves at most one block more for each of its lists.

use std::{collections::BTreeMap, rc::Rc};

use super::rules::{ALL, Rule, path_pattern};

/// How many bytes of missing rights a refusal names.
pub(super) const MAX_NAMED: usize = 256 * 1024;
/// How much work a comparison may be: some tens of milliseconds.
const MAX_WORK: usize = 16_000_000;
/// The work of a word of a set, which takes memory, too.
const WORK_OF_WORD: usize = 8;

/// What a holder of rules lacks.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    /// As rules of one verb and one resource, name or path each.
    pub(crate) pieces: Vec<Rule>,
    /// More is missing than `pieces`.
    pub(crate) is_cut: bool,
    /// The rules are too different to be compared in full; what was not compared counts as missing.
    pub(crate) is_unfinished: bool,
}

impl Missing {
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}

/// What a holder of rules lacks of others; names about `max_named` bytes of that.
pub(crate) fn missing(held: &[Rule], wanted: &[Rule], max_named: usize) -> Missing {
    let mut missing = Missing::default();
    let mut left = Work(MAX_WORK);
    let mut room = max_named;
    for rule in wanted {
        for kind in [Kind::Resources, Kind::Paths] {
            let comparison = Comparison::of(rule, kind);
            let blocks = comparison.lacking(held, &mut left);
            comparison.name(&blocks, &mut missing, &mut room);
        }
    }
    missing.is_unfinished = left.0 == 0;
    missing
}

/// The work that may still be done.
struct Work(usize);

impl Work {
    /// Returns whether there was so much of it left.
    fn spend(&mut self, work: usize) -> bool {
        let left = self.0.checked_sub(work);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}

/// What a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Resources,
    Paths,
}

/// A rule as a block: the product of its lists. In the order in which its pieces are named.
struct Comparison<'a> {
    kind: Kind,
    axes: Vec<Axis<'a>>,
}

impl<'a> Comparison<'a> {
    fn of(rule: &'a Rule, kind: Kind) -> Self {
        let axes = match kind {
            Kind::Resources => vec![
                Axis::new(Items::Groups, &rule.api_groups),
                Axis::new(Items::Resources, &rule.resources),
                Axis::new(Items::Verbs, &rule.verbs),
                Axis::new(Items::Names, &rule.resource_names),
            ],
            Kind::Paths => vec![
                Axis::new(Items::Paths, &rule.non_resource_urls),
                Axis::new(Items::Verbs, &rule.verbs),
            ],
        };
        Self { kind, axes }
    }

    /// The blocks that no held rule covers. Where the work ends before, these are more.
    fn lacking(&self, held: &[Rule], left: &mut Work) -> Vec<Block> {
        let whole: Block = self.axes.iter().map(|it| Rc::new(it.all())).collect();
        if whole.iter().any(|set| set.is_empty()) {
            return Vec::new();
        }
        let mut blocks = vec![whole];
        for rule in held {
            if blocks.is_empty() || left.0 == 0 {
                break;
            }
            // No name of a path would be one of a rule with names.
            if self.kind == Kind::Paths && !rule.resource_names.is_empty() {
                continue;
            }
            let Some(cover) = self.cover(rule, left) else {
                continue;
            };
            let mut rest = Vec::with_capacity(blocks.len());
            for block in blocks {
                cut(block, &cover, left, &mut rest);
            }
            blocks = rest;
        }
        blocks
    }

    /// What a held rule covers of each list; nothing where it covers nothing of one.
    fn cover(&self, held: &Rule, left: &mut Work) -> Option<Vec<Set>> {
        let cover_of = |axis: &Axis<'_>| {
            let cover = axis.cover(held, left);
            (!cover.is_empty()).then_some(cover)
        };
        self.axes.iter().map(cover_of).collect()
    }

    /// Names the combinations in blocks, in the order of the rule, as far as there is room.
    fn name(&self, blocks: &[Block], missing: &mut Missing, room: &mut usize) {
        let mut found: Vec<Vec<usize>> = Vec::new();
        'blocks: for block in blocks {
            let sets: Vec<Vec<usize>> = block.iter().map(|set| set.items()).collect();
            let mut at = vec![0; sets.len()];
            loop {
                let combination: Vec<usize> = std::iter::zip(&sets, &at)
                    .map(|(set, at)| set[*at])
                    .collect();
                let size = self.size(&combination);
                let is_first = missing.pieces.is_empty() && found.is_empty();
                if size > *room && !is_first {
                    missing.is_cut = true;
                    break 'blocks;
                }
                *room = room.saturating_sub(size);
                found.push(combination);
                if !advance(&mut at, &sets) {
                    break;
                }
            }
        }
        found.sort_unstable();
        missing.pieces.extend(found.iter().map(|it| self.piece(it)));
    }

    fn size(&self, combination: &[usize]) -> usize {
        let texts =
            std::iter::zip(&self.axes, combination).map(|(axis, at)| axis.values[*at].len());
        // With its names and punctuation.
        texts.sum::<usize>() + 64
    }

    fn piece(&self, combination: &[usize]) -> Rule {
        let mut piece = Rule::default();
        for (axis, at) in std::iter::zip(&self.axes, combination) {
            if !axis.is_unnamed {
                axis.items
                    .of_mut(&mut piece)
                    .push(axis.values[*at].to_owned());
            }
        }
        piece
    }
}

/// Goes to the next combination, the last list first; `false` after the last one.
fn advance(at: &mut [usize], sets: &[Vec<usize>]) -> bool {
    for (at, set) in std::iter::zip(at, sets).rev() {
        *at += 1;
        if *at < set.len() {
            return true;
        }
        *at = 0;
    }
    false
}

/// A list of a rule.
#[derive(Clone, Copy, Debug)]
enum Items {
    Groups,
    Resources,
    Verbs,
    Names,
    Paths,
}

impl Items {
    fn of(self, rule: &Rule) -> &[String] {
        match self {
            Self::Groups => &rule.api_groups,
            Self::Resources => &rule.resources,
            Self::Verbs => &rule.verbs,
            Self::Names => &rule.resource_names,
            Self::Paths => &rule.non_resource_urls,
        }
    }

    fn of_mut(self, rule: &mut Rule) -> &mut Vec<String> {
        match self {
            Self::Groups => &mut rule.api_groups,
            Self::Resources => &mut rule.resources,
            Self::Verbs => &mut rule.verbs,
            Self::Names => &mut rule.resource_names,
            Self::Paths => &mut rule.non_resource_urls,
        }
    }
}

/// The different items of a list of the wanted rule, by their places.
struct Axis<'a> {
    items: Items,
    values: Vec<&'a str>,
    places: BTreeMap<&'a str, usize>,
    /// The places of resources by the part of them that they name.
    parts: BTreeMap<&'a str, Vec<usize>>,
    /// The rule is about objects of all names, which only a rule without names covers.
    is_unnamed: bool,
}

impl<'a> Axis<'a> {
    fn new(items: Items, list: &'a [String]) -> Self {
        let mut values = Vec::new();
        let mut places = BTreeMap::new();
        let mut parts: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let is_unnamed = matches!(items, Items::Names) && list.is_empty();
        for text in list
            .iter()
            .map(String::as_str)
            .chain(is_unnamed.then_some(""))
        {
            if places.contains_key(text) {
                continue;
            }
            places.insert(text, values.len());
            if let (Items::Resources, Some((_, part))) = (items, text.split_once('/')) {
                parts.entry(part).or_default().push(values.len());
            }
            values.push(text);
        }
        Self {
            items,
            values,
            places,
            parts,
            is_unnamed,
        }
    }

    fn all(&self) -> Set {
        Set::full(self.values.len())
    }

    /// What the same list of a held rule covers; less where the work ends before.
    fn cover(&self, held: &Rule, left: &mut Work) -> Set {
        let list = self.items.of(held);
        let covers_all = match self.items {
            Items::Groups | Items::Verbs | Items::Resources => list.iter().any(|it| it == ALL),
            Items::Names => list.is_empty(),
            Items::Paths => false,
        };
        if covers_all {
            return self.all();
        }
        let mut cover = Set::empty(self.values.len());
        if self.is_unnamed {
            return cover;
        }
        // A search in a map.
        let of_search = 1 + self.values.len().checked_ilog2().map_or(0, |n| n as usize);
        for item in list {
            if !left.spend(of_search) {
                break;
            }
            if let Some(at) = self.places.get(item.as_str()) {
                cover.insert(*at);
            }
            for at in self.matches(item) {
                if !left.spend(1) {
                    break;
                }
                cover.insert(at);
            }
        }
        cover
    }

    /// The places of what an item covers because it is a pattern.
    fn matches<'b>(&'b self, item: &'b str) -> Box<dyn Iterator<Item = usize> + 'b> {
        match self.items {
            Items::Resources => {
                let part = item.strip_prefix("*/").and_then(|it| self.parts.get(it));
                Box::new(part.into_iter().flatten().copied())
            }
            Items::Paths => {
                let prefix = path_pattern(item);
                let range = prefix.map(|prefix| self.places.range(prefix..));
                let range = range.into_iter().flatten();
                let matching = range
                    .take_while(move |(path, _)| prefix.is_some_and(|it| path.starts_with(it)));
                Box::new(matching.map(|(_, at)| *at))
            }
            Items::Groups | Items::Verbs | Items::Names => Box::new(std::iter::empty()),
        }
    }
}

/// A set for each list: all combinations of their items.
type Block = Vec<Rc<Set>>;

/// Adds to `rest` what `cover` leaves of a block, as blocks that have nothing in common. Where there is no work left, that
/// is the block.
fn cut(block: Block, cover: &[Set], left: &mut Work, rest: &mut Vec<Block>) {
    let n_words: usize = cover.iter().map(|set| set.0.len()).sum();
    let is_apart = std::iter::zip(&block, cover).any(|(set, cover)| !set.meets(cover));
    if !left.spend(n_words * WORK_OF_WORD) || is_apart {
        rest.push(block);
        return;
    }
    let mut common = block;
    for (axis, cover) in cover.iter().enumerate() {
        let outside = common[axis].without(cover);
        if !outside.is_empty() {
            let mut part = common.clone();
            part[axis] = Rc::new(outside);
            rest.push(part);
            common[axis] = Rc::new(common[axis].and(cover));
        }
    }
}

/// Places in a list, a bit each.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Set(Vec<u64>);

impl Set {
    fn empty(n: usize) -> Self {
        Self(vec![0; n.div_ceil(64)])
    }

    fn full(n: usize) -> Self {
        let mut set = Self(vec![u64::MAX; n.div_ceil(64)]);
        if let Some(last) = set.0.last_mut().filter(|_| !n.is_multiple_of(64)) {
            *last = (1 << (n % 64)) - 1;
        }
        set
    }

    fn insert(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    fn meets(&self, other: &Self) -> bool {
        std::iter::zip(&self.0, &other.0).any(|(a, b)| a & b != 0)
    }

    fn and(&self, other: &Self) -> Self {
        Self(
            std::iter::zip(&self.0, &other.0)
                .map(|(a, b)| a & b)
                .collect(),
        )
    }

    fn without(&self, other: &Self) -> Self {
        Self(
            std::iter::zip(&self.0, &other.0)
                .map(|(a, b)| a & !b)
                .collect(),
        )
    }

    fn items(&self) -> Vec<usize> {
        let words = self.0.iter().enumerate();
        words
            .flat_map(|(at, word)| {
                let bits = (0..64).filter(move |bit| word & (1 << bit) != 0);
                bits.map(move |bit| at * 64 + bit)
            })
            .collect()
    }
}
