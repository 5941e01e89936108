package faults

// strangers are the tables of somebody else. One of them translates addresses, as
// on most nodes: so the kernel goes on translating what is established while our
// table is gone.
const strangers = `
table ip other { chain post { type nat hook postrouting priority 120; ip saddr 192.0.2.1 masquerade; }; set s { type ipv4_addr; elements = { 192.0.2.7 }; }; }
table ip6 other { chain post { type nat hook postrouting priority 120; ip6 saddr 2001:db8::1 masquerade; }; }
table inet filter { chain input { type filter hook input priority 10; tcp dport 9 drop; }; }
`

func (p *plant) listStrangers() string {
	p.Helper()
	return p.ask("list table ip other") + p.ask("list table ip6 other") + p.ask("list table inet filter")
}
