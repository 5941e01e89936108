package wire

import (
	"iter"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// Attributes under their former names, until every caller uses internal/netlink.

// Attr is netlink.Attr.
type Attr = netlink.Attr

// Attrs is netlink.Attrs.
func Attrs(b []byte) iter.Seq[Attr] { return netlink.Attrs(b) }

// Find is netlink.Find.
func Find(b []byte, kind uint16) Attr { return netlink.Find(b, kind) }

// AppendBytes is netlink.AppendBytes.
func AppendBytes(b []byte, kind uint16, data []byte) []byte {
	return netlink.AppendBytes(b, kind, data)
}

// AppendString is netlink.AppendString.
func AppendString(b []byte, kind uint16, data string) []byte {
	return netlink.AppendString(b, kind, data)
}

// AppendText is netlink.AppendText.
func AppendText(b []byte, kind uint16, text string) []byte { return netlink.AppendText(b, kind, text) }

// AppendUint32 is netlink.AppendUint32.
func AppendUint32(b []byte, kind uint16, n uint32) []byte { return netlink.AppendUint32(b, kind, n) }

// AppendUint64 is netlink.AppendUint64.
func AppendUint64(b []byte, kind uint16, n uint64) []byte { return netlink.AppendUint64(b, kind, n) }

// Nest is netlink.Nest.
func Nest(b []byte, kind uint16) (opened []byte, mark int) { return netlink.Nest(b, kind) }

// End is netlink.End.
func End(b []byte, mark int) []byte { return netlink.End(b, mark) }
