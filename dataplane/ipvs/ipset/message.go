package ipset

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// Commands (enum ipset_cmd).
const (
	cmdProtocol = 1
	cmdCreate   = 2
	cmdDestroy  = 3
	cmdFlush    = 4
	cmdRename   = 5
	cmdSwap     = 6
	cmdList     = 7
	cmdAdd      = 9
	cmdDelete   = 10
	cmdType     = 13
)

// genericBytes is the netfilter header between the netlink header and the
// attributes: family, version, resource.
const genericBytes = 4

// message starts a message of a command; finish it with seal. The first attribute
// is the version of the protocol. Flags are NLM_F_…; without NLM_F_EXCL the kernel
// takes what is done already for success.
func message(command uint8, flags uint16, protocol uint8) []byte {
	b := make([]byte, 4, 128)
	b = binary.NativeEndian.AppendUint16(b, unix.NFNL_SUBSYS_IPSET<<8|uint16(command))
	b = binary.NativeEndian.AppendUint16(b, flags|unix.NLM_F_REQUEST)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // the sequence number comes with sending; the kernel fills in who asks
	b = append(b, unix.AF_INET, unix.NFNETLINK_V0, 0, 0)
	return appendByte(b, attrProtocol, protocol)
}

// seal writes the length of a finished message.
func seal(b []byte) []byte {
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}

// number gives a sealed message its sequence number.
func number(b []byte, seq uint32) { binary.NativeEndian.PutUint32(b[8:], seq) }

// createMessage asks for a set in a revision of its type. With NLM_F_EXCL, a set
// that exists is refused even if it is the same.
func createMessage(protocol uint8, flags uint16, s Spec, revision uint8) []byte {
	b := message(cmdCreate, flags|unix.NLM_F_ACK|unix.NLM_F_CREATE, protocol)
	b = wire.AppendText(b, attrSetName, s.Name)
	b = wire.AppendText(b, attrTypeName, string(s.Type))
	b = appendByte(b, attrRevision, revision)
	b = appendByte(b, attrFamily, uint8(s.Family))
	b, mark := wire.Nest(b, attrData|nested)
	if s.Type == BitmapPort {
		b = appendPort(b, dataPort, 0)
		b = appendPort(b, dataPortTo, 1<<16-1)
	} else {
		if s.HashSize != 0 {
			b = wire.AppendUint32(b, dataHashSize|network, s.HashSize)
		}
		if s.MaxElem != 0 {
			b = wire.AppendUint32(b, dataMaxElem|network, s.MaxElem)
		}
	}
	return seal(wire.End(b, mark))
}

// nameMessage asks for something about one or two sets, or about all of them.
func nameMessage(command uint8, flags uint16, protocol uint8, names ...string) []byte {
	b := message(command, flags, protocol)
	for i, name := range names {
		b = wire.AppendText(b, attrSetName+uint16(i), name)
	}
	return seal(b)
}

// entryMessage adds or deletes one entry. The kernel answers it as any request.
func entryMessage(command, protocol uint8, set string, e Entry) []byte {
	b := message(command, unix.NLM_F_ACK, protocol)
	b = wire.AppendText(b, attrSetName, set)
	b, mark := wire.Nest(b, attrData|nested)
	return seal(wire.End(e.append(b), mark))
}

// listMessage starts a message that adds or deletes several entries, of which
// appendLine adds each; finish it with sealList. The kernel does one after the
// other, stops at the first that it refuses, and answers with the message itself,
// in which it has put the line number of that entry into the line number of the
// message (call_ad in ip_set_core.c). Lines count from 1.
func listMessage(command, protocol uint8, set string) (opened []byte, mark int) {
	b := message(command, unix.NLM_F_ACK, protocol)
	b = wire.AppendText(b, attrSetName, set)
	b = wire.AppendUint32(b, attrLine|network, 0)
	return wire.Nest(b, attrADT|nested)
}

func appendLine(b []byte, line int, e Entry) []byte {
	b, mark := wire.Nest(b, attrData|nested)
	b = wire.AppendUint32(b, attrLine|network, uint32(line))
	return wire.End(e.append(b), mark)
}

func sealList(b []byte, mark int) []byte { return seal(wire.End(b, mark)) }

// answer is what the kernel says to one message.
type answer struct {
	errno syscall.Errno // 0 for yes
	// line is that of the refused entry of a list, 0 when the message was refused
	// before its first entry.
	line uint32
	// err is set when there is no answer, and says why.
	err error
}

// readAnswer reads an NLMSG_ERROR message: the error number, the header of the
// request, and, when an entry of a list was refused, the rest of the request.
func readAnswer(m syscall.NetlinkMessage) (answer, bool) {
	if len(m.Data) < 4+unix.SizeofNlMsghdr {
		return answer{}, false
	}
	a := answer{errno: syscall.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))}
	const attrsAt = 4 + unix.SizeofNlMsghdr + genericBytes
	if m.Header.Flags&unix.NLM_F_CAPPED == 0 && a.errno != 0 && len(m.Data) > attrsAt {
		a.line = wire.Find(m.Data[attrsAt:], attrLine).Uint32()
	}
	return a, true
}
