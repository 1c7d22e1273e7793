//! Several tasks side by side.

use std::future::poll_fn;
use std::task::Poll;

use crate::ports::Task;

/// Runs tasks to their ends, all of them at once. Whatever wakes one has every other one looked at
/// too: for some dozen of them that is cheaper than a queue of those to wake.
pub async fn all(mut tasks: Vec<Task<'_, ()>>) {
    poll_fn(|context| {
        tasks.retain_mut(|task| task.as_mut().poll(context).is_pending());
        if tasks.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod tests {
    use std::cell::RefCell;

    use futures::channel::oneshot;
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn tasks_run_side_by_side_and_all_come_to_their_ends() {
        let (first, second) = (oneshot::channel(), oneshot::channel());
        let ended = RefCell::new(Vec::new());
        let waits: Task<'_, ()> = Box::pin(async {
            first.1.await.unwrap();
            ended.borrow_mut().push("waits");
            second.0.send(()).unwrap();
        });
        let wakes: Task<'_, ()> = Box::pin(async {
            first.0.send(()).unwrap();
            second.1.await.unwrap();
            ended.borrow_mut().push("wakes");
        });
        block_on(all(vec![waits, wakes]));
        assert_eq!(ended.into_inner(), ["waits", "wakes"]);
    }

    #[test]
    fn no_tasks_are_at_their_end() {
        block_on(all(Vec::new()));
    }
}
