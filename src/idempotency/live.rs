//! A run that others follow while it goes on: what has come so far at once, the rest as it comes,
//! the end only when it is committed.
//!
//! ```
//! use futures_util::FutureExt as _;
//! use oncepress::idempotency::live::{Feed, Live, Step};
//! use oncepress::idempotency::reading::Tap as _;
//! let live = Live::default();
//! live.push("data: {}\r\n\r\n");
//! let mut follower = live.follow(0);
//! let step = follower.next().now_or_never().unwrap().unwrap();
//! assert!(matches!(step, Step::Piece(text) if text == "data: {}\r\n\r\n"));
//! assert!(follower.next().now_or_never().is_none());
//! ```

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use futures_util::future::{Either, poll_fn, select};

use crate::app::RunnerError;
use crate::idempotency::reading::Tap;
use crate::idempotency::record::{Settlement, Stored};
use crate::limits::STREAM_KEPT_MAX_BYTES;
use crate::ports::{Clock, Task};
use crate::time::Span;

/// What a follower gets next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Whole events of the stream.
    Piece(String),
    /// How the run ended, and nothing after it. An output in the form of a stream holds only what
    /// the pieces before did not; one in another form is whole.
    End(Settlement),
}

/// A run that is being followed. Dropping the future of `next` loses nothing.
pub trait Feed {
    /// Waits for the next step.
    fn next(&mut self) -> Task<'_, Result<Step, RunnerError>>;
}

/// A run as the others see it; clones are the same run.
#[derive(Clone, Default)]
pub struct Live(Rc<RefCell<Memory>>);

#[derive(Default)]
struct Memory {
    ended: Option<(String, Settlement)>,
    streamed: String,
    wakers: Vec<Waker>,
    followers: usize,
    /// Whether the end can be had from the database.
    kept: bool,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Live")
    }
}

impl Live {
    /// Forgets how an earlier run ended.
    pub fn reopen(&self) {
        self.0.borrow_mut().ended = None;
    }

    /// Forgets what an earlier run streamed.
    pub fn restart(&self) {
        self.0.borrow_mut().streamed.clear();
    }

    /// The run of the job with this token ended.
    pub fn end(&self, token: &str, settlement: Settlement) {
        let mut memory = self.0.borrow_mut();
        if output(&settlement).is_some() {
            // The stored answer begins with it.
            memory.streamed = String::new();
        }
        memory.ended = Some((token.to_owned(), settlement));
        memory.kept = false;
        memory.wake_all();
    }

    /// The end can be had from the database. Where its output is large it is forgotten here, once
    /// nobody follows any more: an actor lives on for minutes.
    pub fn release(&self) {
        let mut memory = self.0.borrow_mut();
        memory.kept = true;
        memory.slim();
    }

    /// The run ended before this incarnation, as the database has it; somebody is about to follow.
    pub fn recall(&self, token: &str, settlement: Settlement) {
        self.end(token, settlement);
        self.0.borrow_mut().kept = true;
    }

    /// The token of the job that has ended.
    pub fn ended(&self) -> Option<String> {
        let memory = self.0.borrow();
        memory.ended.as_ref().map(|(token, _)| token.clone())
    }

    /// Waits at most so long for the end.
    pub async fn wait(&self, clock: &dyn Clock, wait: Span) -> Option<Settlement> {
        let follower = self.follow(0);
        let end = follower.end(clock, wait).await;
        drop(follower);
        end
    }

    /// Follows the run; the first `given` bytes of the stream are known already.
    pub fn follow(&self, given: usize) -> Follower {
        let mut memory = self.0.borrow_mut();
        memory.followers = memory.followers.saturating_add(1);
        drop(memory);
        Follower {
            live: self.clone(),
            given,
        }
    }
}

impl Tap for Live {
    fn push(&self, piece: &str) {
        let mut memory = self.0.borrow_mut();
        memory.streamed.push_str(piece);
        memory.wake_all();
    }

    /// Who follows and has not got all of it yet gets the rest with the end.
    fn taken(&self) -> Option<String> {
        Some(std::mem::take(&mut self.0.borrow_mut().streamed))
    }
}

impl Memory {
    fn wait(&mut self, context: &Context<'_>) {
        let waker = context.waker();
        if self.wakers.iter().all(|known| !known.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
    }

    fn wake_all(&mut self) {
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
    }

    fn slim(&mut self) {
        let large = |(_, end): &(String, Settlement)| is_large(end);
        if self.kept && self.followers == 0 && self.ended.as_ref().is_some_and(large) {
            self.ended = None;
        }
    }
}

/// One that follows a [`Live`] run.
#[derive(Debug)]
pub struct Follower {
    live: Live,
    given: usize,
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut memory = self.live.0.borrow_mut();
        memory.followers = memory.followers.saturating_sub(1);
        memory.slim();
    }
}

impl Follower {
    async fn end(&self, clock: &dyn Clock, wait: Span) -> Option<Settlement> {
        if wait <= Span::default() {
            let memory = self.live.0.borrow();
            return memory.ended.as_ref().map(|(_, end)| end.clone());
        }
        let ended = poll_fn(|context| {
            let mut memory = self.live.0.borrow_mut();
            if let Some((_, settlement)) = &memory.ended {
                return Poll::Ready(settlement.clone());
            }
            memory.wait(context);
            Poll::Pending
        });
        match select(std::pin::pin!(ended), clock.sleep(wait)).await {
            Either::Left((settlement, _)) => Some(settlement),
            Either::Right(((), _)) => None,
        }
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<Step> {
        let mut memory = self.live.0.borrow_mut();
        let rest = memory.streamed.get(self.given..).unwrap_or_default();
        if !rest.is_empty() {
            self.given = memory.streamed.len();
            return Poll::Ready(Step::Piece(rest.to_owned()));
        }
        if let Some((_, settlement)) = &mut memory.ended {
            return Poll::Ready(Step::End(rest_of(settlement, self.given)));
        }
        memory.wait(context);
        Poll::Pending
    }
}

impl Feed for Follower {
    fn next(&mut self) -> Task<'_, Result<Step, RunnerError>> {
        Box::pin(poll_fn(move |context| self.poll(context).map(Ok)))
    }
}

/// A run that has ended, for one that follows it.
#[derive(Debug)]
pub struct Ended(Settlement);

impl Ended {
    /// The end of a run of whose stream the first `given` bytes are known already.
    pub fn new(mut settlement: Settlement, given: usize) -> Self {
        Self(rest_of(&mut settlement, given))
    }
}

impl Feed for Ended {
    fn next(&mut self) -> Task<'_, Result<Step, RunnerError>> {
        Box::pin(std::future::ready(Ok(Step::End(self.0.clone()))))
    }
}

/// The output of a run that has one.
fn output(settlement: &Settlement) -> Option<&Stored> {
    match settlement {
        Settlement::Generated { stored } | Settlement::Held { stored, .. } => Some(stored),
        Settlement::Failed { .. } | Settlement::Unknown { .. } => None,
    }
}

/// Whether a settlement's output is more than an actor remembers after its end.
pub(super) fn is_large(settlement: &Settlement) -> bool {
    output(settlement).is_some_and(|stored| stored.body.len() > STREAM_KEPT_MAX_BYTES)
}

/// A settlement as its mark needs it: an output that lies in R2 is pointed to.
pub(super) fn pointed(settlement: &mut Settlement) -> Settlement {
    let in_r2 = output(settlement).is_some_and(|stored| stored.object.is_some());
    copy(settlement, if in_r2 { usize::MAX } else { 0 })
}

/// A settlement whose output lacks the first `given` bytes, where it is a stream.
fn rest_of(settlement: &mut Settlement, given: usize) -> Settlement {
    let stream = output(settlement).is_some_and(Stored::is_stream);
    copy(settlement, if stream { given } else { 0 })
}

/// A settlement without the first bytes of its output, which is not copied as a whole for that.
fn copy(settlement: &mut Settlement, from: usize) -> Settlement {
    let (Settlement::Generated { stored } | Settlement::Held { stored, .. }) = settlement else {
        return settlement.clone();
    };
    let body = std::mem::take(&mut stored.body);
    let rest = body.get(from..).unwrap_or_default().to_owned();
    let mut copy = settlement.clone();
    if let Settlement::Generated { stored } | Settlement::Held { stored, .. } = settlement {
        stored.body = body;
    }
    if let Settlement::Generated { stored } | Settlement::Held { stored, .. } = &mut copy {
        stored.body = rest;
    }
    copy
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::idempotency::record::tests::stored;

    const A: &str = "data: {\"a\":1}\r\n\r\n";
    const B: &str = "data: {\"b\":2}\r\n\r\n";

    fn next(feed: &mut dyn Feed) -> Option<Step> {
        feed.next().now_or_never().map(Result::unwrap)
    }

    fn generated(content_type: &str, body: &str) -> Settlement {
        Settlement::Generated {
            stored: Box::new(Stored {
                content_type: content_type.to_owned(),
                body: body.to_owned(),
                ..stored()
            }),
        }
    }

    fn streamed(body: &str) -> Settlement {
        generated("text/event-stream", body)
    }

    #[test]
    fn a_late_follower_gets_everything_and_the_end_only_once_it_is_settled() {
        let live = Live::default();
        let mut early = live.follow(0);
        assert_eq!(next(&mut early), None);
        live.push(A);
        assert_eq!(next(&mut early), Some(Step::Piece(A.to_owned())));
        let mut late = live.follow(0);
        assert_eq!(next(&mut late), Some(Step::Piece(A.to_owned())));
        assert_eq!(next(&mut late), None);
        live.end("tok_1", streamed(&format!("{A}{B}")));
        for follower in [&mut early, &mut late] {
            assert_eq!(next(follower), Some(Step::End(streamed(B))));
        }
        let whole = Step::End(streamed(&format!("{A}{B}")));
        assert_eq!(next(&mut live.follow(0)), Some(whole));
    }

    #[test]
    fn what_had_come_is_given_even_where_the_run_ended_in_the_unknown() {
        let live = Live::default();
        let mut follower = live.follow(0);
        live.push(A);
        let unknown = Settlement::Unknown {
            detail: "cut".to_owned(),
        };
        live.end("tok_1", unknown.clone());
        assert_eq!(next(&mut follower), Some(Step::Piece(A.to_owned())));
        assert_eq!(next(&mut follower), Some(Step::End(unknown)));
    }

    #[test]
    fn an_output_that_is_no_stream_is_never_cut() {
        let document = generated("application/json; charset=UTF-8", "{\"a\":1}");
        assert_eq!(
            next(&mut Ended::new(document.clone(), 5)),
            Some(Step::End(document))
        );
    }

    #[test]
    fn what_the_run_took_back_comes_with_the_end() {
        let live = Live::default();
        let (mut early, mut late) = (live.follow(0), live.follow(0));
        live.push(A);
        assert_eq!(next(&mut early), Some(Step::Piece(A.to_owned())));
        assert_eq!(live.taken().as_deref(), Some(A));
        assert_eq!([next(&mut early), next(&mut late)], [None, None]);
        live.end("tok_1", streamed(&format!("{A}{B}")));
        assert_eq!(next(&mut early), Some(Step::End(streamed(B))));
        let whole = Step::End(streamed(&format!("{A}{B}")));
        assert_eq!(next(&mut late), Some(whole));
    }

    #[test]
    fn a_large_end_that_the_database_has_is_forgotten_once_nobody_follows() {
        let large = streamed(&"x".repeat(STREAM_KEPT_MAX_BYTES + 1));
        let live = Live::default();
        let mut follower = live.follow(0);
        live.end("tok_1", large.clone());
        drop(live.follow(0));
        assert!(live.ended().is_some(), "the database may not have it");
        live.release();
        assert_eq!(next(&mut follower), Some(Step::End(large.clone())));
        drop(follower);
        assert_eq!(live.ended(), None);
        live.recall("tok_1", large.clone());
        assert_eq!(next(&mut live.follow(0)), Some(Step::End(large)));
        assert_eq!(live.ended(), None);
        live.end("tok_1", streamed(A));
        live.release();
        assert!(live.ended().is_some(), "a small one is kept");
    }

    #[test]
    fn a_follower_is_woken_once_however_often_it_asked() {
        let live = Live::default();
        let mut follower = live.follow(0);
        for _ in 0..3 {
            assert_eq!(next(&mut follower), None);
        }
        assert_eq!(live.0.borrow().wakers.len(), 1);
    }
}
