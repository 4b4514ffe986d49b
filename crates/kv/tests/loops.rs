//! Event loops that come and go under clients.

mod client;

use client::{Client, Server, bulk, bulks, int, ok};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Lets the server have exactly `loops` loops, and waits until it has.
fn have_loops(server: &Server, client: &mut Client, loops: usize) {
    assert_eq!(client.ask(&format!("CONFIG SET io-threads {loops} io-threads-min {loops}")), ok());
    let started = Instant::now();
    while server.core.lock().server.loops.len() != loops {
        assert!(started.elapsed() < Duration::from_secs(60), "there are never {loops} loops");
        assert_eq!(client.ask("PING"), client::simple("PONG"));
    }
}

#[test]
fn commands_of_a_client_stay_in_order_while_its_connection_moves() {
    let server = Server::start();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for name in 0..6 {
            let ends = &ends;
            let mut client = server.connect();
            scope.spawn(move || {
                let mut count = 0;
                while !ends.load(Ordering::Relaxed) {
                    let one = format!("*2\r\n$4\r\nINCR\r\n$2\r\nk{name}\r\n");
                    client.send_raw(one.repeat(20).as_bytes());
                    for _ in 0..20 {
                        count += 1;
                        assert_eq!(client.reply(), int(count));
                    }
                }
                assert!(count > 0);
            });
        }
        let mut client = server.connect();
        for _ in 0..4 {
            have_loops(&server, &mut client, 3);
            have_loops(&server, &mut client, 1);
        }
        ends.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_client_is_served_by_a_command_of_a_client_of_another_loop() {
    let server = Server::start();
    let mut first = server.connect();
    have_loops(&server, &mut first, 4);
    // Accepted connections go to all loops in turn.
    let mut subscribers: Vec<Client> = (0..8).map(|_| server.connect()).collect();
    let mut waiters: Vec<Client> = (0..8).map(|_| server.connect()).collect();
    for subscriber in &mut subscribers {
        subscriber.ask("SUBSCRIBE news");
    }
    for (number, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(&format!("BLPOP list{number} 0"));
    }
    while server.core.lock().server.waiting.len() < 8 {
        std::thread::yield_now();
    }
    let mut last = server.connect();
    let loops_in_use = || {
        let core = server.core.lock();
        core.server.clients.iter().map(|client| client.event_loop).collect::<std::collections::HashSet<_>>()
    };
    while loops_in_use().len() < 4 {
        assert_eq!(last.ask("PING"), client::simple("PONG"));
    }
    assert_eq!(last.ask("PUBLISH news hello"), int(8));
    for (number, waiter) in waiters.iter_mut().enumerate() {
        assert_eq!(last.ask(&format!("RPUSH list{number} x")), int(1));
        assert_eq!(waiter.reply(), bulks(&[&format!("list{number}"), "x"]));
    }
    for subscriber in &mut subscribers {
        assert_eq!(subscriber.reply(), bulks(&["message", "news", "hello"]));
    }
    // A connection that ends is forgotten, whichever loop has it.
    drop(subscribers);
    while last.ask("PUBSUB NUMSUB news") != client::Reply::Array(vec![bulk("news"), int(0)]) {
        std::thread::yield_now();
    }
}

#[test]
fn a_server_with_several_loops_stops_when_told_by_any() {
    for _ in 0..4 {
        let server = Server::start();
        let mut first = server.connect();
        have_loops(&server, &mut first, 3);
        let mut clients: Vec<Client> = (0..5).map(|_| server.connect()).collect();
        for client in &mut clients {
            assert_eq!(client.ask("PING"), client::simple("PONG"));
        }
        clients[3].send("SHUTDOWN NOSAVE");
        assert!(clients[3].is_closed() && clients[0].is_closed());
    }
}

#[test]
fn a_client_that_sends_nothing_for_longer_than_the_timeout_is_closed() {
    let server = Server::start();
    let (mut idle, mut subscriber, mut waiter) = (server.connect(), server.connect(), server.connect());
    subscriber.ask("SUBSCRIBE news");
    waiter.send("BLPOP list 0");
    let mut last = server.connect();
    while server.core.lock().server.waiting.is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(last.ask("CONFIG SET timeout 1"), ok());
    assert!(idle.is_closed());
    let mut last = server.connect();
    assert_eq!(last.ask("PUBLISH news hello"), int(1));
    assert_eq!(last.ask("RPUSH list x"), int(1));
    assert_eq!(waiter.reply(), bulks(&["list", "x"]));
}
