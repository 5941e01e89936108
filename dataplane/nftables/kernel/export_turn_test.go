package kernel

// Turn is turn, for tests.
var Turn = turn
