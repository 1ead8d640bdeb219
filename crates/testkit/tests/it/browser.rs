//! The browser sees what is wrong with a page.

use anyhow::{Result, ensure};
use sluice_testkit::{Browser, Look, Scratch};

#[test]
fn each_fault_of_a_page_is_found() -> Result<()> {
    crate::run(async {
        let scratch = Scratch::new("faults")?;
        let file = scratch.path().join("page.html");
        let browser = Browser::start().await?;
        browser.look(Look { width: 360, dark: true }).await?;
        for (body, wanted) in [
            ("<img src='data:,'>", "image-alt"),
            ("<div style='width: 500px'>wide</div>", "wider than the window"),
            ("<script>console.error('broken script')</script>", "broken script"),
            (
                "<style>@media (prefers-color-scheme: dark) { p { color: #333; background: #222 } }</style><p>dim</p>",
                "color-contrast",
            ),
        ] {
            let page = format!(
                "<!doctype html><html lang=en><meta name=viewport content='width=device-width'><title>t</title>\
                 <main><h1>t</h1>{body}</main>"
            );
            std::fs::write(&file, page)?;
            browser.open(&format!("file://{}", file.display())).await?;
            let faults = browser.faults().await?;
            ensure!(faults.len() == 1 && faults[0].contains(wanted), "{wanted}: {faults:?}");
        }
        Ok(())
    })
}
