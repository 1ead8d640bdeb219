//! What the hook server knows of pipelines: what the loop has told it. Reading it waits for nobody.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use sluice_api::Pipeline;

use crate::intake::PipelineKey;

/// All pipelines, once they are known.
#[derive(Debug, Default)]
pub struct Directory {
    pipelines: RwLock<(bool, HashMap<PipelineKey, Arc<Pipeline>>)>,
}

/// What is known of a pipeline.
#[derive(Debug)]
pub enum Found {
    /// This.
    Pipeline(Arc<Pipeline>),
    /// There is none.
    None,
    /// They have not been read yet.
    NotYet,
}

impl Directory {
    /// A pipeline as it stands.
    pub fn find(&self, key: &PipelineKey) -> Found {
        let known = self.pipelines.read().unwrap_or_else(PoisonError::into_inner);
        match known.1.get(key) {
            Some(pipeline) => Found::Pipeline(pipeline.clone()),
            None if known.0 => Found::None,
            None => Found::NotYet,
        }
    }

    /// A pipeline is there, or has changed.
    pub fn put(&self, key: PipelineKey, pipeline: Arc<Pipeline>) {
        self.pipelines.write().unwrap_or_else(PoisonError::into_inner).1.insert(key, pipeline);
    }

    /// A pipeline is gone.
    pub fn remove(&self, key: &PipelineKey) {
        self.pipelines.write().unwrap_or_else(PoisonError::into_inner).1.remove(key);
    }

    /// All that there are have been put in.
    pub fn complete(&self) {
        self.pipelines.write().unwrap_or_else(PoisonError::into_inner).0 = true;
    }
}
