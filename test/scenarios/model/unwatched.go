package model

import "github.com/sluice-proxy/sluice/dataplane"

// unwatched is a writer without dataplane.Watcher: the kernel in memory announces
// nothing.
type unwatched struct{ dataplane.Writer }
