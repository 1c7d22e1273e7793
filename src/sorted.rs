//! Maps and sets of a few entries, in the order of their keys.
//!
//! One list each, since the tree maps of the standard library compile to five kilobytes for each
//! pair of types, and sort what they collect with a sort of their own.

use std::borrow::Borrow;
use std::cmp::Ordering;

/// A map for at most some hundred entries: inserting moves the entries behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortedMap<K, V>(Vec<(K, V)>);

impl<K: Ord, V> SortedMap<K, V> {
    /// A map without entries.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// How many entries it has.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value under a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let (_, value) = self.0.get(self.find(key).ok()?)?;
        Some(value)
    }

    /// Whether there is a value under a key.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_ok()
    }

    /// Puts a value under a key; gives the one that was there.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(at) => {
                let (_, old) = self.0.get_mut(at)?;
                Some(std::mem::replace(old, value))
            }
            Err(at) => {
                self.0.insert(at, (key, value));
                None
            }
        }
    }

    /// The value under a key, which is put there first if there is none.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> Option<&mut V> {
        let at = match self.find(&key) {
            Ok(at) => at,
            Err(at) => {
                self.0.insert(at, (key, make()));
                at
            }
        };
        self.0.get_mut(at).map(|(_, value)| value)
    }

    /// Takes a key out.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let at = self.find(key).ok()?;
        Some(self.0.remove(at).1)
    }

    /// The entries, by key.
    pub fn iter(&self) -> std::slice::Iter<'_, (K, V)> {
        self.0.iter()
    }

    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    /// The values, by key.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0
            .binary_search_by(|(known, _)| known.borrow().cmp(key))
    }
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SortedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        map.extend(entries);
        map
    }
}

impl<K: Ord, V> Extend<(K, V)> for SortedMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K, V> IntoIterator for SortedMap<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, K, V> IntoIterator for &'a SortedMap<K, V> {
    type Item = &'a (K, V);
    type IntoIter = std::slice::Iter<'a, (K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// A set of at most some hundred items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortedSet<T>(Vec<T>);

impl<T: Ord> SortedSet<T> {
    /// Puts an item in; `false` where it was there.
    pub fn insert(&mut self, item: T) -> bool {
        let found = self.0.binary_search(&item);
        if let Err(at) = found {
            self.0.insert(at, item);
        }
        found.is_err()
    }

    /// How many items it has.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an item is in it.
    pub fn contains<Q: Ord + ?Sized>(&self, item: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        let found = self.0.binary_search_by(|known| known.borrow().cmp(item));
        found.is_ok()
    }

    /// The items, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }
}

impl<T> Default for SortedSet<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Ord> FromIterator<T> for SortedSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut set = Self::default();
        for item in items {
            set.insert(item);
        }
        set
    }
}

impl<'a, T> IntoIterator for &'a SortedSet<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// Sorts a short list in place, equal items staying in order: by insertion, which is quick for some
/// hundred items, and a hundredth of the code of the standard library's sorts.
pub fn sort_by<T>(list: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    for end in 1..list.len() {
        for at in (1..=end).rev() {
            let before = at.saturating_sub(1);
            let pair = list.get(before).zip(list.get(at));
            if pair.is_none_or(|(left, right)| compare(left, right) != Ordering::Greater) {
                break;
            }
            list.swap(before, at);
        }
    }
}

/// Sorts a list of any length in place, equal items in any order: a heap sort, which takes no more
/// than twice the time of the standard library's and a tenth of its code.
pub fn sort_unstable_by<T>(list: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let less = |list: &[T], left: usize, right: usize| {
        let pair = list.get(left).zip(list.get(right));
        pair.is_some_and(|(left, right)| compare(left, right) == Ordering::Less)
    };
    // First every item with children is sunk, the last one first; then the greatest item, which is
    // now at the top, changes places with the last of those not in order yet.
    let parents = list.len() / 2;
    for step in (0..list.len().saturating_add(parents)).rev() {
        let (mut at, end) = match step.checked_sub(list.len()) {
            Some(parent) => (parent, list.len()),
            None => (0, step),
        };
        if step < list.len() {
            list.swap(0, step);
        }
        loop {
            let mut child = at.saturating_mul(2).saturating_add(1);
            let other = child.saturating_add(1);
            if other < end && less(list, child, other) {
                child = other;
            }
            if child >= end || !less(list, at, child) {
                break;
            }
            list.swap(at, child);
            at = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_map_does_what_a_tree_map_does(
            steps in prop::collection::vec((0_u8..4, 0_u8..12, any::<u16>()), 0..60),
        ) {
            let (mut ours, mut theirs) = (SortedMap::new(), BTreeMap::new());
            for (step, key, value) in steps {
                match step {
                    0 => prop_assert_eq!(ours.insert(key, value), theirs.insert(key, value)),
                    1 => prop_assert_eq!(ours.remove(&key), theirs.remove(&key)),
                    2 => prop_assert_eq!(
                        ours.get_or_insert_with(key, || value),
                        Some(theirs.entry(key).or_insert(value))
                    ),
                    _ => prop_assert_eq!(ours.contains_key(&key), theirs.contains_key(&key)),
                }
                prop_assert_eq!(ours.get(&key), theirs.get(&key));
                prop_assert_eq!(ours.len(), theirs.len());
            }
            prop_assert!(ours.keys().eq(theirs.keys()) && ours.values().eq(theirs.values()));
            prop_assert!(ours.into_iter().eq(theirs));
        }
    }

    proptest! {
        #[test]
        fn a_list_is_sorted_as_the_standard_library_does(
            mut list in prop::collection::vec((0_u8..8, any::<u16>()), 0..40),
        ) {
            let mut theirs = list.clone();
            theirs.sort_by_key(|(key, _)| *key);
            sort_by(&mut list, |a, b| a.0.cmp(&b.0));
            prop_assert_eq!(list, theirs);
        }
    }

    proptest! {
        #[test]
        fn a_long_list_is_sorted_too(mut list in prop::collection::vec(0_u16..300, 0..400)) {
            let mut theirs = list.clone();
            theirs.sort_unstable();
            sort_unstable_by(&mut list, Ord::cmp);
            prop_assert_eq!(list, theirs);
        }
    }

    #[test]
    fn a_set_has_each_item_once_and_in_order() {
        let mut set = SortedSet::from_iter([3, 1, 3]);
        assert_eq!([set.insert(2), set.insert(1)], [true, false]);
        assert!(set.iter().eq(&[1, 2, 3]));
        assert_eq!([set.contains(&2), set.contains(&4)], [true, false]);
    }

    #[test]
    fn the_last_of_equal_keys_counts() {
        let map = SortedMap::from_iter([("b", 1), ("a", 2), ("b", 3)]);
        assert_eq!(map.into_iter().collect::<Vec<_>>(), [("a", 2), ("b", 3)]);
    }
}
