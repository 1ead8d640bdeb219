//! Reads the trailers of commit messages: the lines by which Sluice recognizes the commits of a promotion.
//! `commit_message.rs` writes them.

/// The trailer that names the promotion of a commit, and its round.
pub(crate) const PROMOTION: &str = "Sluice-Promotion";

/// Whether a message has the trailer for the promotion with this key (and round). Only a hint: everybody can write it.
pub(crate) fn carries(message: &str, known_by: &str) -> bool {
    promotions(message).any(|carried| carried == known_by)
}

/// Whether a message has the trailer for this promotion, in any round.
pub(crate) fn names_promotion(message: &str, promotion: &str) -> bool {
    promotions(message).any(|carried| carried.split_once(':').map_or(carried, |(name, _)| name) == promotion)
}

/// Whether a message has the trailer for any promotion.
pub(crate) fn names_any_promotion(message: &str) -> bool {
    promotions(message).next().is_some()
}

/// The most promotions that one message counts for.
const MAX_PROMOTIONS: usize = 20;

/// The promotions that a message has a trailer for: the first [`MAX_PROMOTIONS`].
pub(crate) fn promotions(message: &str) -> impl Iterator<Item = &str> {
    let named = trailers(message).filter_map(|line| line.strip_prefix(PROMOTION)?.strip_prefix(": "));
    named.take(MAX_PROMOTIONS)
}

/// The lines of a commit message that can be trailers: those of the last paragraph, unless it is the title
/// (git-scm.com/docs/git-interpret-trailers). Text of others, such as the title of a change request, is above them.
pub(crate) fn trailers(message: &str) -> impl Iterator<Item = &str> {
    let lines = message.trim().lines().map(str::trim);
    let count = lines.clone().count();
    let last = lines.clone().rev().take_while(|line| !line.is_empty()).count();
    lines.skip(if last < count { count - last } else { count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_counts_for_a_limited_number_of_promotions() {
        let names: String = (0..1_000).map(|n| format!("{PROMOTION}: {n}\n")).collect();
        let found: Vec<String> = promotions(&format!("Promote\n\n{names}")).map(String::from).collect();
        assert_eq!(found, (0..MAX_PROMOTIONS).map(|n| n.to_string()).collect::<Vec<_>>());
    }

    #[test]
    fn trailers_count_in_the_last_paragraph_only() {
        let trailer = "Sluice-Promotion: apps/a";
        for (message, is) in [
            (format!("Promote\n\n- a\n\n{trailer}\nSluice-Onto: 0\n"), true),
            (format!("Promote\r\n\r\n{trailer}\r\n\r\n"), true),
            (format!("Promote\n\n{trailer}\n\nSee also\n"), false),
            (format!("Fix\n\n* Promote\n\n{trailer}\n\nCo-authored-by: eve <e@e>"), false),
            (trailer.to_string(), false),
            (format!("{trailer}\n{trailer}"), false),
            (format!("Promote\n\n> {trailer}"), false),
        ] {
            assert_eq!(carries(&message, "apps/a"), is, "{message:?}");
            assert_eq!(
                (names_any_promotion(&message), names_promotion(&message, "apps/a")),
                (is, is),
                "{message:?}"
            );
        }
    }
}
