package nft

import (
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/nftables"
)

// Kernel is the nf_tables of one node. It is safe for concurrent use: one
// transaction, question or packet at a time.
type Kernel struct {
	mu     sync.Mutex
	tables map[tableKey]*table
	// generation counts the transactions that have changed something.
	generation uint32
	// handles numbers tables, as the kernel does.
	handles uint64
	// ports numbers the sockets.
	ports  uint32
	locals map[netip.Addr]bool
	now    func() time.Time
}

// NewKernel gives a kernel without tables, with no addresses but the loopback
// ones, and with the clock of package time (which is virtual inside a
// testing/synctest bubble).
func NewKernel() *Kernel {
	return &Kernel{
		tables: make(map[tableKey]*table), generation: 1,
		locals: make(map[netip.Addr]bool), now: time.Now,
	}
}

// SetAddresses says which addresses, of either family, are the node's own besides
// the loopback ones.
func (k *Kernel) SetAddresses(addrs ...netip.Addr) {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.locals)
	for _, a := range addrs {
		k.locals[a] = true
	}
}

// SetClock replaces the clock by which elements time out.
func (k *Kernel) SetClock(now func() time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now = now
}

// Open gives a socket, as WriterConfig.Open does. It never fails.
func (k *Kernel) Open() (nftables.Socket, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ports++
	return &socket{kernel: k, port: k.ports}, nil
}

// Generation counts the transactions that have changed something, as the kernel's
// NFTA_GEN_ID does.
func (k *Kernel) Generation() uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.generation
}

// local tells whether an address is the node's own.
func (k *Kernel) local(a netip.Addr) bool { return a.IsLoopback() || k.locals[a] }
