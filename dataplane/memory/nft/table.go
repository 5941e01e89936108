package nft

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// tableKey names a table.
type tableKey struct {
	family uint8
	name   string
}

// table is one table with its content.
type table struct {
	tableKey
	handle   uint64
	userData string
	chains   map[string]*chain
	// order are the chains, oldest first.
	order []*chain
	sets  map[string]*set
	// handles numbers chains, rules and sets.
	handles uint64
}

// Attributes that package unix does not name.
const (
	tableUserData = 6 // NFTA_TABLE_USERDATA, Linux 5.10
	tableHandle   = 4 // NFTA_TABLE_HANDLE
)

// tableAttr names the table in every message: NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, ….
const tableAttr = 1

func (t *table) nextHandle() uint64 {
	t.handles++
	return t.handles
}

// table gives the table that an attribute of a message names.
func (b *batch) table(r request, f fields) (*table, error) {
	if err := f.need("a message", tableAttr); err != nil {
		return nil, err
	}
	return b.kernel.table(r.family, f.text(tableAttr))
}

func (k *Kernel) table(family uint8, name string) (*table, error) {
	t := k.tables[tableKey{family, name}]
	if t == nil {
		return nil, refusef(unix.ENOENT, "no table %s", name)
	}
	return t, nil
}

func (b *batch) newTable(r request) error {
	f, err := r.parse("a table", unix.NLM_F_CREATE|unix.NLM_F_EXCL, unix.NFTA_TABLE_NAME, unix.NFTA_TABLE_FLAGS, tableUserData)
	if err == nil {
		err = f.need("a table", unix.NFTA_TABLE_NAME)
	}
	if err == nil {
		err = f.numbers(4, unix.NFTA_TABLE_FLAGS)
	}
	if err != nil {
		return err
	}
	if flags := f.uint32(unix.NFTA_TABLE_FLAGS); flags != 0 {
		return unknownf("flags %#x of a table", flags)
	}
	k := b.kernel
	key := tableKey{r.family, f.text(unix.NFTA_TABLE_NAME)}
	if k.tables[key] != nil {
		if r.flags&unix.NLM_F_EXCL != 0 {
			return refusef(unix.EEXIST, "table %s exists", key.name)
		}
		return nil
	}
	k.handles++
	t := &table{
		tableKey: key, handle: k.handles, userData: string(f[tableUserData].data),
		chains: make(map[string]*chain), sets: make(map[string]*set),
	}
	b.do(func() { k.tables[key] = t }, func() { delete(k.tables, key) })
	return nil
}

// deleteTable removes a table with everything in it; without a name, all of the
// family, or of both.
func (b *batch) deleteTable(r request) error {
	f, err := r.parse("a table", 0, unix.NFTA_TABLE_NAME)
	if err != nil {
		return err
	}
	tables := b.kernel.tables
	if f.has(unix.NFTA_TABLE_NAME) {
		t, err := b.table(r, f)
		if err == nil {
			b.do(func() { delete(tables, t.tableKey) }, func() { tables[t.tableKey] = t })
		}
		return err
	}
	for key, t := range tables {
		if r.family == unix.NFPROTO_UNSPEC || r.family == key.family {
			b.do(func() { delete(tables, key) }, func() { tables[key] = t })
		}
	}
	return nil
}

// describe gives the attributes of the table.
func (t *table) describe() []byte {
	b := wire.AppendText(nil, unix.NFTA_TABLE_NAME, t.name)
	b = wire.AppendUint32(b, unix.NFTA_TABLE_FLAGS, 0)
	b = wire.AppendUint32(b, unix.NFTA_TABLE_USE, uint32(len(t.chains)+len(t.sets)))
	b = wire.AppendUint64(b, tableHandle, t.handle)
	if t.userData != "" {
		b = wire.AppendString(b, tableUserData, t.userData)
	}
	return b
}

// remove takes a chain out of the table; restore puts it back where it was.
func (t *table) remove(c *chain) (restore func()) {
	at := slices.Index(t.order, c)
	before := t.order
	delete(t.chains, c.name)
	t.order = slices.Delete(slices.Clone(t.order), at, at+1)
	return func() {
		t.chains[c.name] = c
		t.order = before
	}
}
