// SPDX-License-Identifier: Apache-2.0

//go:build !ipvs

package main

import "github.com/sluice-proxy/sluice/test/testenv"

// waitMax bounds everything that a script waits for.
var waitMax = testenv.Patience
