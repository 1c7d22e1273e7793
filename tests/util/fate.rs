//! What may happen at a port call.

use std::rc::Rc;

/// Which port is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Db,
    KvGet,
    KvPut,
    KvOther,
    R2,
    Gemini,
    GeminiBody,
    Hook,
    HookBody,
    Queue,
    Runner,
    Storage,
}

/// How the call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fate {
    /// As it should.
    Fine,
    /// It fails and nothing took place.
    FailBefore,
    /// It takes place, and the reply is lost.
    LostReply,
    /// The isolate dies before anything took place.
    DieBefore,
    /// It takes place, and the isolate dies before it hears of it.
    DieAfter,
    /// It hangs for longer than any lease lasts, and then takes place.
    Slow,
    /// It hangs for a minute and a half, and then takes place.
    Late,
}

impl Fate {
    /// Every way in which a call goes wrong at once.
    pub const WRONG: [Self; 4] = [
        Self::FailBefore,
        Self::LostReply,
        Self::DieBefore,
        Self::DieAfter,
    ];

    pub fn acts(self) -> bool {
        matches!(
            self,
            Self::Fine | Self::LostReply | Self::DieAfter | Self::Slow | Self::Late
        )
    }

    pub fn is_error(self) -> bool {
        matches!(self, Self::FailBefore | Self::LostReply)
    }
}

/// A call as a plan sees it.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its number in this run, from 0.
    pub index: u64,
    pub kind: Kind,
    /// What is asked, in a few words.
    pub label: String,
    pub home: u64,
    /// The task that calls.
    pub task: Rc<str>,
}

/// Decides the fate of each call.
pub type Plan = Box<dyn FnMut(&Call) -> Fate>;

/// A small, seeded source of numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// `SplitMix64`: one multiply-and-shift mix of a counter.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 to `below` − 1.
    pub fn below(&mut self, below: u64) -> u64 {
        self.next() % below.max(1)
    }

    /// True so many times in a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let index = usize::try_from(self.below(items.len() as u64)).unwrap();
        &items[index]
    }
}

/// A stable hash of a text.
pub fn hash(text: &str) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    text.bytes().fold(start, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
