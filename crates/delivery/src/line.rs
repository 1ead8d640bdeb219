//! A queue for a limited number of slots, fair by namespace and then by pipeline: the namespaces that wait are
//! served in turn, and so are the pipelines of each. A namespace with a thousand pipelines delays another one
//! by one slot at a time, and a pipeline with two hundred deliveries another one of its namespace likewise.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::oneshot;

/// A limited number of slots, and those who wait for one.
#[derive(Debug)]
pub struct Line(Mutex<State>);

/// Nobody waits while a slot is free.
#[derive(Debug)]
struct State {
    free: usize,
    waiting: Turns<Turns<VecDeque<oneshot::Sender<Place>>>>,
}

/// Queues by name that are served in turn. None is empty.
#[derive(Debug)]
struct Turns<Q> {
    /// The names in the order in which they are served; the first is next, and then the last.
    order: VecDeque<String>,
    queues: HashMap<String, Q>,
}

impl<Q> Default for Turns<Q> {
    fn default() -> Self {
        Turns { order: VecDeque::new(), queues: HashMap::new() }
    }
}

impl<Q: Default> Turns<Q> {
    /// The queue of this name, made if nobody waits under it yet.
    fn of(&mut self, name: &str) -> &mut Q {
        if !self.queues.contains_key(name) {
            self.order.push_back(name.into());
        }
        self.queues.entry(name.into()).or_default()
    }

    /// Takes the next entry from the queue whose turn it is. `take` returns it, and whether more are left there.
    fn next<T>(&mut self, take: impl FnOnce(&mut Q) -> (Option<T>, bool)) -> Option<T> {
        let name = self.order.pop_front()?;
        let (taken, more) = take(self.queues.get_mut(&name)?);
        if more {
            self.order.push_back(name);
        } else {
            self.queues.remove(&name);
        }
        taken
    }
}

/// Queues by name, each kept for as long as somebody waits in it or has a slot of it.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<HashMap<String, Weak<Line>>>);

impl Lines {
    /// The queue of this name; one for this number of slots if there is none.
    pub(crate) fn of(&self, name: &str, places: usize) -> Arc<Line> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.retain(|_, line| line.strong_count() > 0);
        if let Some(line) = lines.get(name).and_then(Weak::upgrade) {
            return line;
        }
        let line = Line::new(places);
        lines.insert(name.into(), Arc::downgrade(&line));
        line
    }
}

/// A place, for as long as this is held.
#[derive(Debug)]
pub struct Place(Option<Arc<Line>>);

impl Line {
    /// A queue for this number of slots.
    pub fn new(places: usize) -> Arc<Self> {
        Arc::new(Line(Mutex::new(State { free: places, waiting: Turns::default() })))
    }

    /// Waits for a slot, in the queue of a pipeline that is named `namespace/name`. A caller that stops
    /// waiting is passed over.
    pub async fn place(self: &Arc<Self>, pipeline: &str) -> Place {
        let coming = {
            let mut state = self.state();
            if state.free > 0 {
                state.free -= 1;
                return Place(Some(self.clone()));
            }
            state.add(pipeline)
        };
        // Whoever waits is told: the line is held here. Without a place it would only go at once.
        coming.await.unwrap_or(Place(None))
    }

    /// Hands a place that is free now to who is next.
    fn release(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state();
                let next = state.next();
                state.free += usize::from(next.is_none());
                next
            };
            let Some(next) = next else { return };
            match next.send(Place(Some(self.clone()))) {
                Ok(()) => return,
                // It waits no more: the place is still here.
                Err(mut place) => drop(place.0.take()),
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, pipeline: &str) -> oneshot::Receiver<Place> {
        let (sender, coming) = oneshot::channel();
        let namespace = pipeline.split_once('/').map_or(pipeline, |(namespace, _)| namespace);
        self.waiting.of(namespace).of(pipeline).push_back(sender);
        coming
    }

    fn next(&mut self) -> Option<oneshot::Sender<Place>> {
        self.waiting.next(|pipelines| {
            let next = pipelines.next(|queue| (queue.pop_front(), !queue.is_empty()));
            (next, !pipelines.order.is_empty())
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(line) = self.0.take() {
            line.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use futures::future::join_all;

    /// The order in which these pipelines are served, which wait for one slot.
    async fn served(waiting: &[&str]) -> Vec<String> {
        let (line, served) = (Line::new(1), Mutex::new(Vec::new()));
        let held = line.place("first").await;
        let all = join_all(waiting.iter().map(async |pipeline| {
            let _place = line.place(pipeline).await;
            served.lock().unwrap().push(pipeline.to_string());
        }));
        // Polled once, all of them wait.
        let mut all = Box::pin(all);
        assert!((&mut all).now_or_never().is_none());
        drop(held);
        all.await;
        served.into_inner().unwrap()
    }

    #[tokio::test]
    async fn pipelines_are_served_in_turn_and_each_in_the_order_it_came() {
        for (waiting, expected) in
            [("abc", "abc"), ("aaaaaaab", "abaaaaaa"), ("aaabbc", "abcaba"), ("aabbb", "ababb")]
        {
            let waiting: Vec<String> = waiting.chars().map(|c| format!("apps/{c}")).collect();
            let waiting: Vec<&str> = waiting.iter().map(String::as_str).collect();
            let expected: Vec<String> = expected.chars().map(|c| format!("apps/{c}")).collect();
            assert_eq!(served(&waiting).await, expected);
        }
    }

    #[tokio::test]
    async fn namespaces_are_served_in_turn_whatever_the_number_of_their_pipelines() {
        let busy: Vec<String> = (0..1000).map(|n| format!("busy/app-{n}")).collect();
        let mut waiting: Vec<&str> = busy.iter().map(String::as_str).collect();
        waiting.extend(["quiet/one", "quiet/two", "other/one"]);
        let served = served(&waiting).await;
        assert_eq!(
            served[..6],
            ["busy/app-0", "quiet/one", "other/one", "busy/app-1", "quiet/two", "busy/app-2"]
        );
        assert_eq!(served.len(), 1003);
        // Those of the busy namespace in the order in which they came.
        let rest: Vec<&String> = served.iter().filter(|p| p.starts_with("busy/")).collect();
        assert_eq!(rest, busy.iter().collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn so_many_have_a_place_at_once_and_who_stops_waiting_takes_none() {
        let line = Line::new(2);
        let (one, other) = (line.place("a").await, line.place("a").await);
        // One that is given up before its turn, and one whose turn has come and who does not know it yet.
        let mut early = Box::pin(line.place("b"));
        let mut late = Box::pin(line.place("c"));
        assert!((&mut early).now_or_never().is_none() && (&mut late).now_or_never().is_none());
        drop(early);
        drop(one);
        assert_eq!(line.state().free, 0);
        drop(late);
        assert_eq!(line.state().free, 1);
        drop(other);
        let both = [line.place("d").now_or_never(), line.place("d").now_or_never()];
        assert!(both.iter().all(Option::is_some));
        assert!(line.place("d").now_or_never().is_none());
        drop(both);
        assert_eq!(line.state().free, 2);
    }
}
