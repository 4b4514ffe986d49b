//! All schedules with a bounded number of preemptions: a thread continues until it waits, yields or ends, except
//! for a few places where another one is put before it. Most races need one such place or two.

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

pub struct Bounded {
    preemptions: usize,
    /// What was chosen at each step, and of how many.
    choices: Vec<(usize, usize)>,
    step: usize,
    left: usize,
    schedules: usize,
}

impl Bounded {
    pub fn new(preemptions: usize) -> Bounded {
        Bounded { preemptions, choices: Vec::new(), step: 0, left: preemptions, schedules: 0 }
    }
}

impl Scheduler for Bounded {
    fn new_execution(&mut self) -> Option<Schedule> {
        if self.schedules > 0 {
            while self.choices.last().is_some_and(|(choice, of)| choice + 1 == *of) {
                self.choices.pop();
            }
            self.choices.last_mut()?.0 += 1;
        }
        self.schedules += 1;
        (self.step, self.left) = (0, self.preemptions);
        Some(Schedule::new(0))
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, yields: bool) -> Option<TaskId> {
        let mut ids: Vec<TaskId> = runnable.iter().map(|task| task.id()).collect();
        // In a circle from the current one, so that threads that yield to each other meet all others.
        let start = current.map_or(0, |now| ids.iter().position(|id| *id >= now).unwrap_or(0));
        ids.rotate_left(start);
        let goes_on = current.is_some_and(|now| ids[0] == now);
        // A thread that yields yields to the next; switching to another one is a preemption, or a loop of waiting
        // would have schedules without end.
        if goes_on && yields && ids.len() > 1 {
            ids.remove(0);
        }
        let preempts = goes_on;
        let of = if preempts && self.left == 0 { 1 } else { ids.len() };
        if self.step == self.choices.len() {
            self.choices.push((0, of));
        }
        let (choice, before) = self.choices[self.step];
        assert_eq!(of, before, "the scenario is not the same each time");
        self.step += 1;
        self.left -= usize::from(preempts && choice > 0);
        Some(ids[choice])
    }

    fn next_u64(&mut self) -> u64 {
        panic!("the pool asks for no random numbers")
    }
}
