//! What a worker holds: leases, their children, and how to stop them.
//!
//! Invariant: a lease is held once. One that has ended is remembered for a while, so that an old
//! answer that still names it does not start it again. Of two leases of one task only the newer is
//! named to the server: the older one ended when the command parked its task.

use super::child::Stop;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};

/// How many ended leases are remembered.
const REMEMBERED: usize = 4_096;

struct Held {
    task_id: String,
    stop: watch::Sender<Option<Stop>>,
    group: Option<Pid>,
    /// The child has ended, and the server is being told.
    is_over: bool,
    /// A newer lease of the same task is held, so this one has ended.
    is_outdated: bool,
}

#[derive(Default)]
struct State {
    held: HashMap<String, Held>,
    ended: VecDeque<String>,
}

impl State {
    fn remember(&mut self, lease_id: &str) {
        self.ended.push_back(lease_id.to_owned());
        if self.ended.len() > REMEMBERED {
            self.ended.pop_front();
        }
    }
}

/// All leases of a worker.
#[derive(Default)]
pub struct Hold {
    state: Mutex<State>,
    changed: Notify,
}

/// What became of an attempt to take a lease.
pub enum Taken {
    /// It runs until this says otherwise.
    Slot(watch::Receiver<Option<Stop>>),
    /// It is held already, or has ended.
    Known,
    /// All slots are taken. It is held until it has been given back.
    NoRoom,
}

impl Hold {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a lease if there is room for it.
    pub fn take(&self, task_id: &str, lease_id: &str, slots: usize) -> Taken {
        let mut state = self.state();
        if state.held.contains_key(lease_id) || state.ended.iter().any(|ended| ended == lease_id) {
            return Taken::Known;
        }
        let has_room = state.held.len() < slots;
        let (stop, stopped) = watch::channel(None);
        for older in state.held.values_mut().filter(|held| held.task_id == task_id) {
            older.is_outdated = true;
            older
                .stop
                .send_if_modified(|stop| stop.is_none() && stop.replace(Stop::Drop).is_none());
        }
        let task_id = task_id.to_owned();
        let held = Held { task_id, stop, group: None, is_over: false, is_outdated: false };
        state.held.insert(lease_id.to_owned(), held);
        if has_room { Taken::Slot(stopped) } else { Taken::NoRoom }
    }

    /// Notes the process group that works under a lease.
    pub fn set_group(&self, lease_id: &str, group: Pid) {
        if let Some(held) = self.state().held.get_mut(lease_id) {
            held.group = Some(group);
        }
    }

    /// The child of a lease has ended; the lease is held until the server has been told.
    pub fn set_over(&self, lease_id: &str) {
        if let Some(held) = self.state().held.get_mut(lease_id) {
            held.group = None;
            held.is_over = true;
        }
    }

    /// The lease has ended.
    pub fn end(&self, lease_id: &str) {
        let mut state = self.state();
        if state.held.remove(lease_id).is_some() {
            state.remember(lease_id);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Every lease with its task, as far as it may still hold.
    pub fn leases(&self) -> Vec<(String, String)> {
        let state = self.state();
        let current = state.held.iter().filter(|(_, held)| !held.is_outdated);
        current.map(|(lease, held)| (held.task_id.clone(), lease.clone())).collect()
    }

    /// How many leases are held.
    pub fn len(&self) -> usize {
        self.state().held.len()
    }

    /// Stops the child of one lease; true if it ran and nobody had stopped it before. The first
    /// reason stands.
    pub fn stop(&self, lease_id: &str, why: Stop) -> bool {
        let state = self.state();
        let Some(held) = state.held.get(lease_id).filter(|held| !held.is_over) else {
            return false;
        };
        held.stop.send_if_modified(|stop| stop.is_none() && stop.replace(why).is_none())
    }

    /// The same on the word of somebody who may know of a lease before it is here: the stream may
    /// overtake the answer of the claim. Such a lease is not begun when it comes.
    pub fn stop_or_refuse(&self, lease_id: &str, why: Stop) -> bool {
        let mut state = self.state();
        if !state.held.contains_key(lease_id) {
            state.remember(lease_id);
            return false;
        }
        drop(state);
        self.stop(lease_id, why)
    }

    /// Stops every child.
    pub fn stop_all(&self, why: Stop) {
        for (_, lease_id) in self.leases() {
            self.stop(&lease_id, why);
        }
    }

    /// Kills every group, because this process ends now.
    pub fn kill_all(&self) {
        for held in self.state().held.values() {
            if let Some(group) = held.group {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
    }

    /// Resolves when a lease ends after this call.
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// Resolves when nothing is held.
    pub async fn emptied(&self) {
        loop {
            let changed = self.changed();
            tokio::pin!(changed);
            // Registered before the look, so that an end between the two is not missed.
            changed.as_mut().enable();
            if self.len() == 0 {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_held_once_also_after_its_end() {
        let hold = Hold::default();
        assert!(matches!(hold.take("t", "a", 1), Taken::Slot(_)));
        assert!(matches!(hold.take("t", "a", 1), Taken::Known));
        assert!(matches!(hold.take("u", "b", 1), Taken::NoRoom));
        hold.end("a");
        assert!(matches!(hold.take("t", "a", 9), Taken::Known));
        assert_eq!(hold.len(), 1);
    }

    #[test]
    fn a_newer_lease_of_a_task_ends_the_older_one() {
        // A heartbeat that named both would be told that the task is lost, and end them both.
        let hold = Hold::default();
        let Taken::Slot(stopped) = hold.take("t", "a", 2) else { panic!("no slot") };
        assert!(matches!(hold.take("t", "b", 2), Taken::Slot(_)));
        assert_eq!(hold.leases(), [("t".to_owned(), "b".to_owned())]);
        assert_eq!(*stopped.borrow(), Some(Stop::Drop));
        hold.end("a");
        assert_eq!(hold.leases(), [("t".to_owned(), "b".to_owned())]);
    }

    #[test]
    fn the_first_reason_to_stop_stands() {
        let hold = Hold::default();
        let Taken::Slot(stopped) = hold.take("t", "a", 1) else { panic!("no slot") };
        assert!(hold.stop("a", Stop::Drop));
        assert!(!hold.stop("a", Stop::Drop));
        hold.stop_all(Stop::Release);
        assert_eq!(*stopped.borrow(), Some(Stop::Drop));
    }

    #[test]
    fn a_lease_whose_end_is_told_before_it_comes_is_not_begun() {
        let hold = Hold::default();
        assert!(!hold.stop_or_refuse("a", Stop::Drop));
        assert!(matches!(hold.take("t", "a", 1), Taken::Known));
        let Taken::Slot(stopped) = hold.take("t", "b", 1) else { panic!("no slot") };
        assert!(hold.stop_or_refuse("b", Stop::Drop));
        assert_eq!(*stopped.borrow(), Some(Stop::Drop));
    }

    #[test]
    fn a_child_that_has_ended_is_not_stopped() {
        // A beat that names a lease may cross the call that finishes it: then it is answered as
        // lost, although nothing was lost.
        let hold = Hold::default();
        let Taken::Slot(stopped) = hold.take("t", "a", 1) else { panic!("no slot") };
        hold.set_over("a");
        assert!(!hold.stop("a", Stop::Drop));
        assert_eq!(*stopped.borrow(), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let hold = Hold::default();
        for i in 0..REMEMBERED + 10 {
            let lease = i.to_string();
            assert!(matches!(hold.take("t", &lease, 1), Taken::Slot(_)));
            hold.end(&lease);
        }
        assert_eq!(hold.state().ended.len(), REMEMBERED);
    }
}
