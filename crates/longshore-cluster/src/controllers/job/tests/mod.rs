//! What a Job decides, as tables; and whole Jobs in a small world, with a crash at every request.

mod crash;
mod indexed;
mod rounds;
mod world;
