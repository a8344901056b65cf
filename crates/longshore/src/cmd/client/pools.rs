//! `longshore pools list|set|delete`.

use clap::{Args, Subcommand};
use longshore_console::objects::{Pool, PoolSize};

use super::{
    ServerArgs, block_on,
    print::{self, Detail},
    table::Table,
};
use crate::{
    cli::{Globals, help_end},
    error::CliError,
    exit::Exit,
};

/// Work with pools: how many tasks that name one run at the same time
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    List(ListArgs),
    Set(SetArgs),
    Delete(DeleteArgs),
}

/// List the pools of a service
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore pools list"))]
pub(crate) struct ListArgs {
    #[command(flatten)]
    server: ServerArgs,
}

/// Make a pool, or change its size while runs go on
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore pools set database 4"))]
pub(crate) struct SetArgs {
    /// The pool
    pool: String,
    /// How many slots; -1 is no limit
    #[arg(allow_negative_numbers = true)]
    slots: i64,
    #[command(flatten)]
    server: ServerArgs,
}

/// Delete a pool: its tasks wait until there is one of this name again
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore pools delete database"))]
pub(crate) struct DeleteArgs {
    /// The pool
    pool: String,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn dispatch(command: &Command, globals: &Globals) -> Result<Exit, CliError> {
    match command {
        Command::List(args) => {
            let client = args.server.connect()?;
            let pools = block_on(async { Ok(client.pools().await?) })?;
            print::list(&pools, name, |_: Detail| table(&pools.items), globals);
        }
        Command::Set(args) => {
            let client = args.server.connect()?;
            let size = PoolSize {
                slots: Some(args.slots),
            };
            let pool = block_on(async { Ok(client.set_pool(&args.pool, &size).await?) })?;
            let text = |pool: &Pool| format!("pool {} has {} slots\n", pool.name, slots(pool));
            print::object(&pool, name, text, globals);
        }
        Command::Delete(args) => {
            let client = args.server.connect()?;
            let pool = block_on(async { Ok(client.delete_pool(&args.pool).await?) })?;
            let text = |pool: &Pool| format!("pool {} is deleted\n", pool.name);
            print::object(&pool, name, text, globals);
        }
    }
    Ok(Exit::Success)
}

fn name(pool: &Pool) -> String {
    format!("pool/{}", pool.name)
}

fn slots(pool: &Pool) -> String {
    if pool.slots < 0 {
        "unlimited".to_owned()
    } else {
        pool.slots.to_string()
    }
}

fn table(pools: &[Pool]) -> Table {
    let mut table = Table::new(&["POOL", "SLOTS", "FROM"]);
    for pool in pools {
        let from = pool.file.clone();
        let from = from.unwrap_or_else(|| "command".to_owned());
        table.row([pool.name.clone(), slots(pool), from]);
    }
    table
}
