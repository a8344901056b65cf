//! Development only: fixtures, the laws of every controller, the fault layer, the simulated clock, the scripted node.
