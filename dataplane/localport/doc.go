// Package localport lets node ports answer on 127.0.0.1 and ::1 where the
// kernel's rules cannot: it listens there and forwards to the node's own node
// port, where the rules of another domain balance, remember clients and follow
// endpoints. A change of endpoints therefore changes nothing here.
//
//	client ──► 127.0.0.1:30080 ──► this process ──► 192.0.2.10:30080 ──► rules ──► endpoint
//	                 listener          (copies)       the node's own address
//
// It is a domain like any other: a listener is an object, [Renderer] says which
// are wanted, [Writer] opens, retargets and closes them. The reasons, and what
// is given up, are in docs/adr/0007-localhost-node-ports.md.
//
// What happens to traffic when a listener changes is what the kernel's rules do:
//
//   - retargeted (the node's address has changed): open TCP connections stay
//     with the target that they have, a UDP session moves with the client's next
//     datagram;
//   - removed: new clients are refused at once; open TCP connections go on until
//     they end, as translated ones do; UDP sessions end, as stale UDP flows are
//     cut;
//   - the process ends, or [Writer.Close]: everything ends.
package localport
