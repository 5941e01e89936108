// Package encoders compares our own netlink encoders with the libraries that could
// replace them, on the operations that the proxy does and on the same kernel.
// docs/adr/0020-one-netlink-transport.md quotes the results. As root:
//
//	go test -run '^$' -bench . -benchmem ./encoders
//
// Each benchmark has one sub-benchmark per encoder, named after it. Both do the same to
// the kernel and leave it as it was.
package encoders
