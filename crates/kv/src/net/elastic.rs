//! How many event loops there are: a pure policy over windows of time. TierBase §4.4.
//!
//! One loop is the state of rest: no lock is contended then. While the loops are busy nearly all the time, one more is started; if that did not raise the
//! commands a second, as there was no core for it or as commands themselves are the work, it goes back to one and waits longer before it tries again. When
//! the loops together have less than one loop's work, it goes back to one.

/// Length of a window.
pub const WINDOW_MS: u64 = 100;
/// The share of a window that each loop works at which another is started.
const FULL: f64 = 0.9;
/// Windows in a row that are full before another loop is started.
const FULL_WINDOWS: u32 = 3;
/// The work of all loops together below which one is enough.
const SLACK: f64 = 0.7;
const SLACK_WINDOWS: u32 = 8;
/// Windows after a start until its gain is looked at, and the windows whose commands are compared.
const SETTLING_WINDOWS: u32 = 2;
const TRIED_WINDOWS: u32 = 5;
/// The gain below which more loops are not worth it.
const GAIN: f64 = 1.05;
/// Windows without a new trial after one that gained nothing; doubled each time.
const PAUSE_WINDOWS: u32 = 50;
const PAUSE_WINDOWS_MAX: u32 = 3000;

/// What was seen in a window.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub loops: usize,
    /// Loops that run without load, and at most.
    pub loops_min: usize,
    pub loops_max: usize,
    pub clients: usize,
    /// The share of the time that the least busy loop worked.
    pub least_worked: f64,
    /// The sum of the shares of all loops.
    pub worked: f64,
    pub commands: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    Stay,
    /// Start one more.
    Grow,
    /// Go back to one.
    Rest,
}

#[derive(Default)]
pub struct Policy {
    full: u32,
    /// Commands in the windows that were full.
    full_commands: u64,
    slack: u32,
    /// A trial: commands a window before it, and what it has seen.
    trial: Option<Trial>,
    pause: u32,
    next_pause: u32,
}

struct Trial {
    before: f64,
    windows: u32,
    commands: u64,
}

impl Policy {
    pub fn decide(&mut self, window: Window) -> Decision {
        if window.loops > window.loops_max {
            return self.rest();
        }
        if window.loops < window.loops_min.min(window.loops_max) {
            self.rest();
            return Decision::Grow;
        }
        if window.loops > window.loops_min {
            self.slack = if window.worked < SLACK { self.slack + 1 } else { 0 };
            if self.slack >= SLACK_WINDOWS {
                self.next_pause = 0;
                return self.rest();
            }
        }
        if let Some(trial) = &mut self.trial {
            trial.windows += 1;
            if trial.windows > SETTLING_WINDOWS {
                trial.commands += window.commands;
            }
            if trial.windows < SETTLING_WINDOWS + TRIED_WINDOWS {
                return Decision::Stay;
            }
            let gained = trial.commands as f64 / f64::from(TRIED_WINDOWS) >= trial.before * GAIN;
            self.trial = None;
            // With less work than before, nothing can be said of the gain.
            if !gained && window.worked >= SLACK {
                self.next_pause = (self.next_pause * 2).clamp(PAUSE_WINDOWS, PAUSE_WINDOWS_MAX);
                self.pause = self.next_pause;
                return self.rest();
            }
        }
        if self.pause > 0 {
            self.pause -= 1;
            return Decision::Stay;
        }
        let has_more = window.loops < window.loops_max && window.clients > window.loops;
        if !has_more || window.least_worked < FULL {
            (self.full, self.full_commands) = (0, 0);
            return Decision::Stay;
        }
        self.full += 1;
        self.full_commands += window.commands;
        if self.full < FULL_WINDOWS {
            return Decision::Stay;
        }
        let before = self.full_commands as f64 / f64::from(self.full);
        (self.full, self.full_commands, self.slack) = (0, 0, 0);
        self.trial = Some(Trial { before, windows: 0, commands: 0 });
        Decision::Grow
    }

    fn rest(&mut self) -> Decision {
        (self.full, self.full_commands, self.slack, self.trial) = (0, 0, 0, None);
        Decision::Rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(loops: usize, worked: f64, commands: u64) -> Window {
        let least_worked = worked / loops as f64;
        Window { loops, loops_min: 1, loops_max: 4, clients: 50, least_worked, worked, commands }
    }

    fn first(policy: &mut Policy, wanted: Decision, window: Window) -> usize {
        (1..10_000).find(|_| policy.decide(window) == wanted).unwrap()
    }

    #[test]
    fn another_loop_starts_within_a_second_of_load_and_goes_within_a_second_of_its_end() {
        let mut policy = Policy::default();
        for _ in 0..100 {
            assert_eq!(policy.decide(window(1, 0.3, 2_000)), Decision::Stay);
        }
        assert!(first(&mut policy, Decision::Grow, window(1, 1.0, 10_000)) as u64 * WINDOW_MS <= 1000);
        // It gains, and the next one too.
        assert!(first(&mut policy, Decision::Grow, window(2, 1.9, 18_000)) as u64 * WINDOW_MS <= 1000);
        assert!(first(&mut policy, Decision::Rest, window(3, 0.3, 2_000)) as u64 * WINDOW_MS <= 1000);
    }

    #[test]
    fn a_loop_that_gains_nothing_goes_and_is_tried_again_ever_later() {
        let mut policy = Policy::default();
        let mut waits = Vec::new();
        for _ in 0..4 {
            waits.push(first(&mut policy, Decision::Grow, window(1, 1.0, 10_000)));
            first(&mut policy, Decision::Rest, window(2, 1.8, 9_900));
        }
        assert!(waits.windows(2).all(|pair| pair[0] < pair[1]), "{waits:?}");
    }

    #[test]
    fn there_are_never_more_loops_than_clients_or_than_allowed() {
        let mut policy = Policy::default();
        let one_client = Window { clients: 1, ..window(1, 1.0, 10_000) };
        let no_more = Window { loops_max: 1, ..window(1, 1.0, 10_000) };
        for _ in 0..100 {
            assert_eq!(policy.decide(one_client), Decision::Stay);
            assert_eq!(policy.decide(no_more), Decision::Stay);
        }
        let too_many = Window { loops_max: 1, ..window(2, 2.0, 10_000) };
        assert_eq!(policy.decide(too_many), Decision::Rest);
    }
}
