package service

// candidate is one occurrence of an endpoint behind a service port. It refers to
// its slice by number, so that sorting moves little and the garbage collector
// has nothing to follow.
type candidate struct {
	// head holds the first 16 bytes of the text form, zero-padded and read as
	// big-endian numbers. It decides nearly all comparisons of IPv4 endpoints.
	head [2]uint64
	// slice is the position of the slice in the gathering, and index that of
	// the endpoint in the slice.
	slice, index int32
	// text is the offset of the text form in the gathering's buffer.
	text     int32
	port     uint16
	textSize uint8
	standing standing
	// local tells that the endpoint runs on this node.
	local bool
}

// ready candidates are the normal target of new connections.
func (c *candidate) ready() bool { return c.standing >= readyTerminating }

// usable candidates may get new connections, some only for want of better ones.
func (c *candidate) usable() bool { return c.standing >= servingTerminating }

// serving candidates may keep established flows.
func (c *candidate) serving() bool { return c.standing >= unready }
