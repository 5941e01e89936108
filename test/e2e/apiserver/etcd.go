package main

import (
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// etcdStartMax bounds the start of the database; a fraction of a second is usual.
const etcdStartMax = 30 * time.Second

// startEtcd starts a database of one member in this process. It serves on loopback, at a port that the
// kernel picks: only this process needs to know it.
func startEtcd(dir string) (*embed.Etcd, error) {
	anyPort := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	c := embed.NewConfig()
	c.Dir = dir
	c.LogLevel = "warn"
	c.LogOutputs = []string{"stderr"}
	c.ListenClientUrls = []url.URL{anyPort}
	c.ListenPeerUrls = []url.URL{anyPort}
	// The member's entry for itself. It never changes across restarts, and nobody connects to it.
	c.AdvertiseClientUrls = []url.URL{anyPort}
	c.AdvertisePeerUrls = []url.URL{anyPort}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.EnableGRPCGateway = false // it would dial the entry above, for nobody
	// A single member elects itself as soon as it may, and has no network to be patient with.
	c.TickMs = 10
	c.ElectionMs = 100
	// Package embed leaves this at zero, which makes every request a slow one that is worth a warning.
	c.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	// What the process wrote survives it without this; only a power failure would not be survived.
	c.UnsafeNoFsync = true

	e, err := embed.StartEtcd(c)
	if err != nil {
		return nil, fmt.Errorf("etcd in %s: %w", dir, err)
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, nil
	case err := <-e.Err():
		e.Close()
		return nil, fmt.Errorf("etcd in %s: %w", dir, err)
	case <-time.After(etcdStartMax):
		e.Close()
		return nil, fmt.Errorf("etcd in %s: not ready after %v", dir, etcdStartMax)
	}
}
