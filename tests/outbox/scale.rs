//! The cost of a drain grows neither with what was published nor with what others owe. SQLite's own
//! count of instructions stands for rows; D1's figures are in `tests/e2e/scale.spec.mjs`.

use crate::world::World;

/// Instructions and statements of a drain of 20 rows beside so many others.
fn cost(published: u32, others: u32) -> (i64, u32) {
    let world = World::new();
    world.seed("p", "acme", "living", "published", published);
    world.seed("d", "acme", "dead", "dead", others);
    world.seed("o", "acme", "dead", "pending", others);
    // The other backlog waits for its next attempt.
    world
        .db
        .execute("UPDATE deliveries SET next_attempt_at = 1896000000000 WHERE publisher = 'dead'");
    world.seed("a", "acme", "living", "pending", 20);
    world.db.steps.set(0);
    world.db.statements.set(0);
    assert_eq!(world.drain().published, 20);
    (world.db.steps.get(), world.db.statements.get())
}

#[test]
fn the_same_20_rows_cost_the_same_beside_a_thousand_times_as_many_others() {
    let (small, few) = cost(1_000, 10);
    let (large, many) = cost(100_000, 10_000);
    println!("a drain of 20 rows: {small} instructions beside 10^3, {large} beside 10^5");
    assert_eq!(few, many);
    assert!(large <= small + small / 20, "{small} and {large}");
}
