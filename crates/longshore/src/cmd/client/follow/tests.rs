use super::*;

/// Never, or at once.
struct Stop(bool);

impl Interrupts for Stop {
    fn next(&mut self) -> impl Future<Output = ()> {
        let is_now = self.0;
        async move {
            if !is_now {
                future::pending::<()>().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn following_ends_with_the_end_the_wish_or_the_time() {
    let minute = Some(Duration::from_secs(60));
    let over = || future::ready(Ok(7));
    let never = future::pending::<Result<i32, CliError>>;
    let cases = [
        (until(over(), minute, Stop(true)).await, Followed::Over(7)),
        (until(never(), minute, Stop(true)).await, Followed::Detached),
        (
            until(never(), minute, Stop(false)).await,
            Followed::TimedOut,
        ),
    ];
    for (followed, expected) in cases {
        assert_eq!(followed.unwrap(), expected);
    }
}
