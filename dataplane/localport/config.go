package localport

import "time"

// Config tunes a Writer. Zero values mean the defaults, which hold for each
// writer, that is for each family.
type Config struct {
	// Connections bounds the TCP connections of all listeners together, and
	// ConnectionsPerListener those of one; a client beyond is reset. Each takes
	// up to six file descriptors: two sockets and two pipes to splice through.
	// Defaults 1024 and 512.
	Connections, ConnectionsPerListener int
	// Sessions bounds the UDP sessions of all listeners together, and
	// SessionsPerListener those of one; a new one takes the place of the
	// listener's least recently active. Each takes a file descriptor. Defaults
	// 4096 and 1024.
	Sessions, SessionsPerListener int
	// DialTimeout bounds the wait for a target to accept a TCP connection; the
	// client is reset then. Default 10 s: the fourth SYN goes out after 7 s.
	DialTimeout time.Duration
	// Unreplied is how long a UDP session lives without traffic while nothing
	// has come back, Replied how long once something has. Defaults 30 s and
	// 120 s, conntrack's nf_conntrack_udp_timeout and …_udp_timeout_stream.
	Unreplied, Replied time.Duration
	// Inside runs a function on a thread in the network namespace to open
	// sockets in. Default: the process's own namespace.
	Inside func(func() error) error
	// Report is told, from any goroutine, of failures that no receipt tells of;
	// it must not block. Default: nobody is told.
	Report func(Failure)
}

func (c Config) withDefaults() Config {
	defaulted(&c.Connections, 1024)
	defaulted(&c.ConnectionsPerListener, 512)
	defaulted(&c.Sessions, 4096)
	defaulted(&c.SessionsPerListener, 1024)
	defaulted(&c.DialTimeout, 10*time.Second)
	defaulted(&c.Unreplied, 30*time.Second)
	defaulted(&c.Replied, 120*time.Second)
	if c.Inside == nil {
		c.Inside = here
	}
	if c.Report == nil {
		c.Report = func(Failure) {}
	}
	return c
}

// here runs a function where the caller is.
func here(f func() error) error { return f() }

func defaulted[T int | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}
