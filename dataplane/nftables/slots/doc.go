// Package slots decides which slot of a table each endpoint of a Service gets,
// so that picking an endpoint is a random slot, and a change of the endpoints
// moves few of them.
//
// Goals: (1) the table depends on the set of endpoints alone, never on history:
// a restarted process finds what its predecessor wrote; (2) one endpoint more
// or less moves a small number of others that does not grow with the size of
// the Service; (3) every endpoint is picked equally often; (4) the number of
// different table sizes grows with the logarithm of the largest Service.
//
// A table has more slots than endpoints (4, 2), and an empty one is answered by
// another try (3). Endpoints have a rank by hash; in the order of rank each
// takes the first free slot on a walk of its own (1). Whoever leaves makes room
// for the first below that would have liked the place better, who makes room in
// turn: at the bounded load of a table that chain is short (2). The first in
// rank has slot 0, so that a last try always finds somebody.
package slots
