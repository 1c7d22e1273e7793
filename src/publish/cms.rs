//! Publishing to a content management system that knows no idempotency key.
//!
//! The post's slug and a mark in its text make it recognisable. Every attempt looks before it
//! writes, creates a draft, and publishes it by its id. So the step that readers see can be
//! repeated without harm, and a creation that was carried out twice leaves an unseen draft. A
//! destination that finds the slug taken chooses another without a word; then what was just written
//! is taken back, and what is at the slug is adopted if, and only if, it is ours.

use super::answer::{Answer, Judge, Sent, unexpected};
use super::slug::Slug;
use super::{Effect, Failure, Outcome, Parcel, Publication, Reply, Step, failure};
use crate::ports::HttpRequest;
use crate::time::Timestamp;

/// What differs from one system to another: the requests, and how their answers are read.
pub(crate) trait Dialect {
    /// Asks for the posts at the slug and at its suffixed forms, drafts included.
    fn look(&self, now: Timestamp) -> HttpRequest;
    /// Asks for one post.
    fn read(&self, id: &str, now: Timestamp) -> HttpRequest;
    /// Creates a draft at the slug.
    fn create(&self, now: Timestamp) -> HttpRequest;
    /// Makes a draft public.
    fn publish(&self, post: &Post, now: Timestamp) -> HttpRequest;
    /// Removes a post of ours, so that it can be got back where the system allows.
    fn take_back(&self, post: &Post, now: Timestamp) -> HttpRequest;
    /// Removes it for good, where the system has no other way.
    fn take_back_for_good(&self, post: &Post, now: Timestamp) -> HttpRequest;
    /// The posts of an answer to [`Dialect::look`]; `None` where it can't be read.
    fn posts(&self, answer: &Answer) -> Option<Vec<Post>>;
    /// The post of any other answer.
    fn post(&self, answer: &Answer) -> Option<Post>;
}

/// A post at the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Post {
    pub(crate) id: String,
    pub(crate) slug: String,
    pub(crate) visibility: Visibility,
    pub(crate) link: Option<String>,
    /// What an update must name, where the system wants that.
    pub(crate) version: Option<String>,
    pub(crate) owner: Owner,
}

/// Whether readers (will) see a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// Nobody sees it.
    Draft,
    /// It is out, or a person has set when and for whom.
    Settled,
    /// It has been thrown away.
    Trashed,
}

/// Whose a post is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// It carries this delivery's key.
    Ours,
    /// It does not.
    Other,
}

/// One attempt at publishing one post.
#[derive(Debug)]
pub(crate) struct Posting<D> {
    dialect: D,
    slug: Slug,
    judge: Judge,
    state: State,
    /// The post that this delivery created, in this attempt or an earlier one.
    mine: Option<Post>,
    progress: Option<String>,
    /// Made public in this attempt.
    published: bool,
    looks: u32,
    creations: u32,
}

#[derive(Debug)]
enum State {
    Start,
    Resuming,
    Looking,
    Creating,
    Publishing,
    TakingBack(Box<Removal>),
    Over,
}

/// A surplus post being removed, and what comes after.
#[derive(Debug)]
struct Removal {
    post: Post,
    for_good: bool,
    rest: Vec<Post>,
    then: Then,
}

/// What follows once the surplus posts are gone.
#[derive(Debug)]
enum Then {
    Create,
    Publish(Post),
    Done(Post),
    Fail(&'static str, &'static str),
}

impl<D: Dialect> Posting<D> {
    pub(crate) fn new(dialect: D, slug: Slug, parcel: &Parcel, secrets: Vec<String>) -> Self {
        Self {
            dialect,
            slug,
            judge: Judge::new(parcel.maybe_sent, secrets),
            state: State::Start,
            mine: None,
            progress: parcel.progress.clone(),
            published: false,
            looks: 0,
            creations: 0,
        }
    }

    fn advance(&mut self, reply: Option<Reply>, now: Timestamp) -> Result<HttpRequest, Outcome> {
        let state = std::mem::replace(&mut self.state, State::Over);
        let Some(reply) = reply else {
            return match state {
                State::Start => self.start(now),
                State::Resuming
                | State::Looking
                | State::Creating
                | State::Publishing
                | State::TakingBack(_)
                | State::Over => Err(unexpected()),
            };
        };
        match state {
            State::Resuming => self.resumed(&self.judge.answer(reply, Sent::Look)?, now),
            State::Looking => self.looked(&self.judge.answer(reply, Sent::Look)?, now),
            State::Creating => self.created(&self.judge.answer(reply, Sent::Write)?, now),
            State::Publishing => self.made_public(&self.judge.answer(reply, Sent::Write)?, now),
            State::TakingBack(removal) => {
                self.taken_back(*removal, &self.judge.answer(reply, Sent::Write)?, now)
            }
            State::Start | State::Over => Err(unexpected()),
        }
    }

    fn start(&mut self, now: Timestamp) -> Result<HttpRequest, Outcome> {
        match &self.progress {
            Some(id) => {
                self.state = State::Resuming;
                Ok(self.dialect.read(id, now))
            }
            None => self.look(now),
        }
    }

    /// The post of an earlier attempt: ours whatever became of its slug and text.
    fn resumed(&mut self, answer: &Answer, now: Timestamp) -> Result<HttpRequest, Outcome> {
        if !answer.is_success() {
            // A person removed it, or it can't be read alone: the slug will tell.
            return if matches!(answer.status, 404 | 410) {
                self.look(now)
            } else {
                Err(self.judge.refused(answer, Sent::Look, now))
            };
        }
        let Some(post) = self.dialect.post(answer) else {
            return self.look(now);
        };
        let ours = Post {
            owner: Owner::Ours,
            ..post
        };
        match (
            ours.visibility,
            ours.slug == self.slug.text,
            self.is_suffixed(&ours),
        ) {
            (Visibility::Draft, true, _) => Ok(self.publish(ours, now)),
            // A person gave it another name after it was published.
            (Visibility::Settled, true, _) | (Visibility::Settled, false, false) => {
                Err(self.done(&ours))
            }
            (Visibility::Draft | Visibility::Settled, false, _) => {
                self.mine = Some(ours);
                self.look(now)
            }
            (Visibility::Trashed, _, _) => self.look(now),
        }
    }

    fn is_suffixed(&self, post: &Post) -> bool {
        let suffix = post
            .slug
            .strip_prefix(&self.slug.text)
            .and_then(|rest| rest.strip_prefix('-'));
        suffix.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
    }

    fn look(&mut self, now: Timestamp) -> Result<HttpRequest, Outcome> {
        self.looks = self.looks.saturating_add(1);
        if self.looks > LOOKS_MAX {
            let why = "the posts at this slug keep changing";
            return Err(self.judge.again(Failure::new(failure::TARGET_MOVED, why)));
        }
        self.state = State::Looking;
        Ok(self.dialect.look(now))
    }

    fn looked(&mut self, answer: &Answer, now: Timestamp) -> Result<HttpRequest, Outcome> {
        if !answer.is_success() {
            return Err(self.judge.refused(answer, Sent::Look, now));
        }
        let Some(posts) = self.dialect.posts(answer) else {
            return Err(self.judge.unreadable(answer, Sent::Look));
        };
        self.settle(posts, now)
    }

    /// Decides what to keep, what to take back and how to go on.
    fn settle(&mut self, posts: Vec<Post>, now: Timestamp) -> Result<HttpRequest, Outcome> {
        let mine_id = self.mine.as_ref().map(|post| post.id.clone());
        let is_ours = |post: &Post| post.owner == Owner::Ours || mine_id.as_ref() == Some(&post.id);
        let (mut ours, others): (Vec<Post>, Vec<Post>) = posts.into_iter().partition(is_ours);
        if let Some(mine) = self
            .mine
            .take()
            .filter(|mine| ours.iter().all(|o| o.id != mine.id))
        {
            ours.push(mine);
        }
        if others.iter().any(|post| post.slug == self.slug.text) {
            let why = "another post has this slug; choose another target, or move that one away";
            return self.take_back(ours, Then::Fail(failure::TARGET_TAKEN, why), now);
        }
        match ours.iter().position(|post| post.slug == self.slug.text) {
            Some(at) => {
                let keeper = ours.swap_remove(at);
                let then = match keeper.visibility {
                    Visibility::Draft => Then::Publish(keeper),
                    Visibility::Settled | Visibility::Trashed => Then::Done(keeper),
                };
                self.take_back(ours, then, now)
            }
            None if self.creations < CREATIONS_MAX => self.take_back(ours, Then::Create, now),
            None => {
                let why = "the destination does not accept this slug and writes under another; \
                           choose another target";
                self.take_back(ours, Then::Fail(failure::TARGET_RENAMED, why), now)
            }
        }
    }

    fn take_back(
        &mut self,
        mut surplus: Vec<Post>,
        then: Then,
        now: Timestamp,
    ) -> Result<HttpRequest, Outcome> {
        if let Some(post) = surplus.pop() {
            let request = self.dialect.take_back(&post, now);
            let removal = Removal {
                post,
                for_good: false,
                rest: surplus,
                then,
            };
            self.state = State::TakingBack(Box::new(removal));
            return Ok(request);
        }
        match then {
            Then::Create => Ok(self.create(now)),
            Then::Publish(post) => Ok(self.publish(post, now)),
            Then::Done(post) => Err(self.done(&post)),
            Then::Fail(code, why) => Err(Outcome::Permanent(Failure::new(code, why))),
        }
    }

    fn taken_back(
        &mut self,
        removal: Removal,
        answer: &Answer,
        now: Timestamp,
    ) -> Result<HttpRequest, Outcome> {
        if answer.status == 501 && !removal.for_good {
            let request = self.dialect.take_back_for_good(&removal.post, now);
            let removal = Removal {
                for_good: true,
                ..removal
            };
            self.state = State::TakingBack(Box::new(removal));
            return Ok(request);
        }
        if answer.is_success() || matches!(answer.status, 404 | 410) {
            return self.take_back(removal.rest, removal.then, now);
        }
        self.judge.wrote();
        Err(self.judge.refused(answer, Sent::Write, now))
    }

    fn create(&mut self, now: Timestamp) -> HttpRequest {
        self.creations = self.creations.saturating_add(1);
        self.state = State::Creating;
        self.dialect.create(now)
    }

    fn created(&mut self, answer: &Answer, now: Timestamp) -> Result<HttpRequest, Outcome> {
        if !answer.is_success() {
            return Err(self.judge.refused(answer, Sent::Write, now));
        }
        self.judge.wrote();
        let Some(post) = self.dialect.post(answer) else {
            return self.look(now);
        };
        let ours = Post {
            owner: Owner::Ours,
            ..post
        };
        self.progress = Some(ours.id.clone());
        if ours.slug == self.slug.text {
            return Ok(self.publish(ours, now));
        }
        self.mine = Some(ours);
        self.look(now)
    }

    fn publish(&mut self, post: Post, now: Timestamp) -> HttpRequest {
        // From here on something of ours is there, whoever of our attempts made it.
        self.judge.wrote();
        self.progress = Some(post.id.clone());
        self.state = State::Publishing;
        let request = self.dialect.publish(&post, now);
        self.mine = Some(post);
        request
    }

    fn made_public(&mut self, answer: &Answer, now: Timestamp) -> Result<HttpRequest, Outcome> {
        match answer.status {
            // Changed since it was read: look again, and publish what is there then.
            409 => self.look(now),
            404 | 410 => {
                let why = "the draft was removed before it was published";
                Err(self
                    .judge
                    .again(self.judge.failure(answer, failure::TARGET_MOVED, why)))
            }
            200..=299 => {
                self.published = true;
                let Some(post) = self.dialect.post(answer) else {
                    return self.look(now);
                };
                if post.slug == self.slug.text && post.visibility == Visibility::Settled {
                    return Err(self.done(&post));
                }
                self.mine = Some(Post {
                    owner: Owner::Ours,
                    ..post
                });
                self.look(now)
            }
            _ => Err(self.judge.refused(answer, Sent::Write, now)),
        }
    }

    fn done(&self, post: &Post) -> Outcome {
        let link = post.link.as_ref().unwrap_or(&post.id);
        Outcome::Published {
            reference: self.judge.reference(link),
            replayed: !self.published,
        }
    }
}

impl<D: Dialect> Publication for Posting<D> {
    fn step(&mut self, reply: Option<Reply>, now: Timestamp) -> Step {
        match self.advance(reply, now) {
            Ok(request) => Step::Do(Effect::Http(request)),
            Err(outcome) => Step::Done(outcome),
        }
    }

    fn progress(&self) -> Option<String> {
        self.progress.clone()
    }
}

/// Each further look follows a change that somebody else made; three in one attempt are enough.
const LOOKS_MAX: u32 = 4;
/// A second creation helps where the one in the way has just gone, a third never.
const CREATIONS_MAX: u32 = 2;
