//! Asks before something is destroyed: a person on a terminal is asked, a script must say `--yes`.

use std::io::{BufRead, IsTerminal, Write};

use crate::exit::{Code, Done, Failure};
use crate::output::tell;

/// True when the person agrees. After a no, the command prints that nothing changed and succeeds.
pub(crate) async fn confirm(question: &str, is_sure: bool) -> Done<bool> {
    if is_sure {
        return Ok(true);
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let text = format!("{question} Not without --yes, since nobody can be asked here");
        return Err(Failure::usage(text));
    }
    let question = question.to_owned();
    let (tell, told) = tokio::sync::oneshot::channel();
    // A thread of its own, which the end of the process does not wait for: Ctrl-C must work.
    std::thread::spawn(move || {
        let mut answer = String::new();
        let mut terminal = std::io::stderr();
        let read = write!(terminal, "{question} [y/N] ")
            .and_then(|()| terminal.flush())
            .and_then(|()| std::io::stdin().lock().read_line(&mut answer));
        let _ = tell.send(read.map(|_| answer));
    });
    match told.await {
        Ok(Ok(answer)) if matches!(answer.trim(), "y" | "Y" | "yes") => Ok(true),
        Ok(Ok(_)) => {
            tell!("nothing changed");
            Ok(false)
        }
        Ok(Err(error)) => Err(Failure::new(Code::Error, format!("ask: {error}"))),
        Err(_) => Err(Failure::new(Code::Error, "nobody answered")),
    }
}
