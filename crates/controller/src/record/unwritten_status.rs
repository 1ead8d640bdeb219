//! Why a status cannot be written, if that lasts until a person does something. The status cannot say that, so an event does.

use kube::Error;
use sluice_api::too_large::is_too_large;

use crate::watch::read_error::api_error_message;

/// What the API server says of fields that the definition of the kind does not have (`NewStrictDecodingError` in
/// runtime/error.go of apimachinery). Their names follow.
pub(crate) const UNDECLARED: &str = "strict decoding error: ";

/// The note about an object that is too large for its status.
const TOO_LARGE: &str = "the status cannot be written, and shows an earlier state: with its spec, labels, annotations and \
                         managedFields the object is larger than the API server stores; remove what it does not need";

/// The event about a status that cannot be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwrittenStatus {
    /// The reason of the event.
    pub reason: &'static str,
    /// The note of the event.
    pub note: String,
}

impl UnwrittenStatus {
    /// Returns the event about this error of a status write, if only a person can end it.
    pub fn of(error: &Error) -> Option<Self> {
        match error {
            Error::Api(status) if is_too_large(status) => {
                Some(Self { reason: "StatusTooLarge", note: TOO_LARGE.into() })
            }
            _ if is_undeclared(error) => {
                let why = write_error_message(error);
                let note = format!("the status cannot be written, and shows an earlier state: {why}");
                Some(Self { reason: "CrdsOutdated", note })
            }
            _ => None,
        }
    }
}

fn is_undeclared(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.message.starts_with(UNDECLARED))
}

/// Returns why a status cannot be written, and what to do if the definitions are older than Sluice.
pub fn write_error_message(error: &Error) -> String {
    let message = api_error_message(error);
    match is_undeclared(error) {
        true => format!(
            "{message}: the CRDs are of an older version of Sluice; apply those of this version: \
             sluice crds | kubectl apply --server-side -f -"
        ),
        false => message,
    }
}
