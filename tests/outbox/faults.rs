//! Poisoned and huge rows: each has its own fate, and the others go on.

use oncepress::ports::Object;

use crate::sqlite::{Fault, When};
use crate::world::World;

/// What each way of spoiling row a1 makes of it; the other rows must be published.
fn spoilt(spoil: impl Fn(&World)) -> (String, String) {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 10);
    spoil(&world);
    world.drain();
    assert_eq!(world.calls("living"), 9, "the others");
    (
        world.delivery("dlv_a1", "status"),
        world.delivery("dlv_a1", "error"),
    )
}

#[test]
fn a_row_that_cannot_be_read_dies_alone_with_the_reason() {
    let set = |sql: &'static str| {
        move |world: &World| {
            let _ = world.db.execute(sql);
        }
    };
    let poisons: [(&str, Box<dyn Fn(&World)>); 6] = [
        (
            "not JSON",
            Box::new(set(
                "UPDATE outputs SET body = '{\"out' WHERE output_id = 'out_a1'",
            )),
        ),
        (
            "no text",
            Box::new(set(
                "UPDATE outputs SET body = '{}' WHERE output_id = 'out_a1'",
            )),
        ),
        (
            "no such surface",
            Box::new(set(
                "UPDATE generations SET surface = 'x' WHERE id = 'gen_a1'",
            )),
        ),
        (
            "no generation",
            Box::new(set(
                "UPDATE deliveries SET generation_id = 'gen_x' WHERE id = 'dlv_a1'",
            )),
        ),
        (
            "no publisher",
            Box::new(set(
                "UPDATE deliveries SET publisher = 'nowhere' WHERE id = 'dlv_a1'",
            )),
        ),
        (
            "not its publisher",
            Box::new(set(
                "UPDATE deliveries SET account = 'stranger' WHERE id = 'dlv_a1'",
            )),
        ),
    ];
    for (name, poison) in poisons {
        let (status, error) = spoilt(poison);
        assert_eq!(status, "dead", "{name}: {error}");
        assert!(!error.is_empty(), "{name}");
    }
}

#[test]
fn outputs_that_are_missing_open_no_circuit_of_an_innocent_destination() {
    let (status, error) = spoilt(|world| {
        world
            .db
            .execute("DELETE FROM outputs WHERE output_id = 'out_a1'");
    });
    assert_eq!(status, "pending", "the store may be behind: {error}");
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 10);
    world
        .db
        .execute("DELETE FROM outputs WHERE output_id IN ('out_a1', 'out_a2', 'out_a3', 'out_a4')");
    world.drain();
    assert_eq!(world.calls("living"), 6);
    assert_eq!(world.db.number("SELECT COUNT(*) FROM circuits"), 0);
}

#[test]
fn huge_outputs_in_the_bucket_and_in_parts_are_published() {
    let world = World::new();
    world.seed("a", "acme", "files", "pending", 4);
    let body = |text: &str| format!("{{\"output\":{{\"text\":\"{text}\"}}}}");
    let huge = "é".repeat(950_000);
    let name = oncepress::idempotency::runner::output_object("out_a1");
    let object = Object {
        bytes: body(&huge).into_bytes(),
        ..Object::default()
    };
    world.bucket.objects.borrow_mut().insert(name, object);
    world.db.execute(
        "UPDATE generations SET output_where = 'r2', output_parts = 0 WHERE id = 'gen_a1'",
    );
    // In two parts, and in one that is too large to be read along with the others.
    let whole = body(&"x".repeat(1_900_000));
    let large = body(&"y".repeat(200_000));
    world.db.execute(&format!(
        "UPDATE outputs SET body = '{}' WHERE output_id = 'out_a2'",
        &whole[..1_000_000]
    ));
    world.db.execute(&format!(
        "INSERT INTO outputs VALUES ('out_a2', 1, '{}')",
        &whole[1_000_000..]
    ));
    world
        .db
        .execute("UPDATE generations SET output_parts = 2 WHERE id = 'gen_a2'");
    world.db.execute(&format!(
        "UPDATE outputs SET body = '{large}' WHERE output_id = 'out_a3'"
    ));
    assert_eq!(world.drain().published, 4);
    let objects = world.bucket.objects.borrow();
    let sizes = ["a1.md", "a2.md", "a3.md"].map(|name| objects[name].bytes.len());
    assert_eq!(sizes, [1_900_000, 1_900_000, 200_000]);
}

#[test]
fn a_store_that_fails_while_rows_are_found_leaves_every_row_as_due_as_it_was() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 10);
    for sql in ["WITH RECURSIVE lane", "d_lease_token", "lease_until = ?52"] {
        world.db.faults.borrow_mut().push_back(Fault {
            sql,
            when: When::Before,
            times: 4,
        });
        let _ = futures::executor::block_on(world.drain_with(50));
        assert_eq!(world.calls("living"), 0, "{sql}");
    }
    assert_eq!(world.drain().published, 10);
}
