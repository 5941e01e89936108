package ipset

import "golang.org/x/sys/unix"

// Type says what the entries of a set are made of, by the kernel's name.
type Type string

// The types whose entries can be read and written here.
const (
	HashIP        Type = "hash:ip"          // 10.0.0.1
	HashIPPort    Type = "hash:ip,port"     // 10.0.0.1,tcp:80
	HashIPPortIP  Type = "hash:ip,port,ip"  // 10.0.0.1,tcp:80,10.0.0.2
	HashIPPortNet Type = "hash:ip,port,net" // 10.0.0.1,tcp:80,203.0.113.0/25
	BitmapPort    Type = "bitmap:port"      // 30080
)

// Known says whether entries of the type can be read and written here.
func (t Type) Known() bool {
	switch t {
	case HashIP, HashIPPort, HashIPPortIP, HashIPPortNet, BitmapPort:
		return true
	}
	return false
}

// revision is the oldest one that has all we need: of the hash types with ports,
// those before 1 cannot keep SCTP. Tools of any age can list a set of an old
// revision, while they refuse to list one that is newer than they are.
func (t Type) revision() uint8 {
	switch t {
	case HashIPPort, HashIPPortIP, HashIPPortNet:
		return 1
	}
	return 0
}

// Family is the family of the addresses in a set, as NFPROTO_….
type Family uint8

// The families; a bitmap of ports has none.
const (
	NoFamily Family = unix.NFPROTO_UNSPEC
	Inet     Family = unix.NFPROTO_IPV4
	Inet6    Family = unix.NFPROTO_IPV6
)

// String gives the word that ipset(8) uses, nothing for NoFamily.
func (f Family) String() string {
	switch f {
	case Inet:
		return "inet"
	case Inet6:
		return "inet6"
	}
	return ""
}
