//go:build !ipvs

package main

import "time"

// waitMax bounds everything that a script waits for.
const waitMax = 15 * time.Second
