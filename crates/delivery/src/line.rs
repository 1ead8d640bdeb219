//! A line for a few places, in which every pipeline has a queue of its own. They are served in turn, one of
//! each: who comes with two hundred delays another by one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// So many at once; the others wait.
#[derive(Debug)]
pub(crate) struct Line(Mutex<State>);

/// Nobody waits while a place is free.
#[derive(Debug)]
struct State {
    free: usize,
    /// Who waits, by pipeline; the first is next, and goes to the end with those who are left.
    queues: VecDeque<(String, VecDeque<oneshot::Sender<Place>>)>,
}

/// A place, for as long as this is held.
#[derive(Debug)]
pub(crate) struct Place(Option<Arc<Line>>);

impl Line {
    /// A line for so many places.
    pub(crate) fn new(places: usize) -> Arc<Self> {
        Arc::new(Line(Mutex::new(State { free: places, queues: VecDeque::new() })))
    }

    /// Waits for a place, in the queue of this pipeline. Who stops waiting is passed over.
    pub(crate) async fn place(self: &Arc<Self>, pipeline: &str) -> Place {
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
        match self.queues.iter_mut().find(|(of, _)| of == pipeline) {
            Some((_, queue)) => queue.push_back(sender),
            None => self.queues.push_back((pipeline.into(), [sender].into())),
        }
        coming
    }

    fn next(&mut self) -> Option<oneshot::Sender<Place>> {
        let (pipeline, mut queue) = self.queues.pop_front()?;
        let next = queue.pop_front();
        if !queue.is_empty() {
            self.queues.push_back((pipeline, queue));
        }
        next
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

    /// In which order these are served who wait for one place, a letter a pipeline.
    async fn served(waiting: &str) -> String {
        let (line, served) = (Line::new(1), Mutex::new(String::new()));
        let held = line.place("first").await;
        let all = join_all(waiting.chars().map(async |pipeline| {
            let _place = line.place(&pipeline.to_string()).await;
            served.lock().unwrap().push(pipeline);
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
            assert_eq!(served(waiting).await, expected);
        }
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
