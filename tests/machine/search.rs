//! A search that visits every state once, and tells the way to one that breaks a promise.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A step in a few words: what is done, and to which.
pub type Step = (&'static str, usize);

/// A machine whose every step is known.
pub trait Machine: Clone + Hash + std::fmt::Debug {
    /// Every next state, with a few words on the step; what a step breaks is told with it.
    fn steps(&self) -> Vec<(Step, Self, Vec<String>)>;
    /// What is wrong with a state in which nothing moves any more.
    fn at_rest(&self) -> Vec<String>;
}

/// What a search came to.
#[derive(Clone, Debug, Default)]
pub struct Visited {
    pub states: usize,
    pub transitions: usize,
    pub ends: usize,
    /// The first broken promise, and the way there.
    pub broken: Option<String>,
}

/// Visits every state that can be reached; ends early where a promise is broken.
pub fn visit<M: Machine>(start: M) -> Visited {
    let mut visited = Visited::default();
    let mut known = HashSet::from([digest(&start)]);
    // Each state with the one it came from: the way back is the story.
    let mut ways: Vec<(usize, Step)> = vec![(0, ("the start", 0))];
    let mut open = vec![(0_usize, start)];
    while let Some((at, state)) = open.pop() {
        visited.states += 1;
        let steps = state.steps();
        if steps.is_empty() {
            visited.ends += 1;
            let wrong = state.at_rest();
            if !wrong.is_empty() {
                visited.broken = Some(story(&ways, at, &wrong, &state));
                return visited;
            }
        }
        for (step, next, wrong) in steps {
            visited.transitions += 1;
            if !wrong.is_empty() {
                ways.push((at, step));
                visited.broken = Some(story(&ways, ways.len() - 1, &wrong, &next));
                return visited;
            }
            if known.insert(digest(&next)) {
                ways.push((at, step));
                open.push((ways.len() - 1, next));
            }
        }
    }
    visited
}

fn digest<M: Hash>(state: &M) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// What is broken, the way there, and where it ended.
fn story<M: std::fmt::Debug>(
    ways: &[(usize, Step)],
    mut at: usize,
    wrong: &[String],
    state: &M,
) -> String {
    let mut way = Vec::new();
    while at != 0 {
        let (step, which) = ways[at].1;
        way.push(format!("  {step} ({which})"));
        at = ways[at].0;
    }
    way.reverse();
    format!("{}\n{}\n{state:#?}", wrong.join("; "), way.join("\n"))
}
